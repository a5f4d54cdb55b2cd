# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Search of whole beams for blocks with an answer, by each rule of `answers`.

A training step of ORQA tests 5000 blocks for each question (Lee et al. 2019,
section 3.4). The search looks in the stored bytes of each block for ASCII substrings
that every block with an answer contains. Only blocks with a hit take the rule's test.
"""

from collections.abc import Sequence
import functools
import re

from absl import logging
from jaxtyping import Bool, Int
import numpy as np

from retrieval.questions import answers as answers_lib, question_files
from retrieval.text import blocks as blocks_lib

_KELVIN = '\N{KELVIN SIGN}'.encode()  # decomposed, a K; two others a ; and a `
_MAX_QUESTIONS = 1 << 16  # size of the caches


class QuestionSearch:
  """Search for blocks with an answer, by the rule for each question's kind.

  An answer that every text contains matches nothing, with one warning.
  """

  def __init__(self, blocks: blocks_lib.BlockStore, rule: str):
    """Open the blocks; `rule` is that of answers that are strings."""
    self._rules = {
      'string': answers_lib.make_rule(rule),
      'regex': answers_lib.make_rule('regex'),
    }
    self._blocks = blocks
    array = blocks.tokens.store.array
    self._text_end, self._text = array('text_end'), array('text')
    # Every epoch repeats the questions.
    cache = functools.lru_cache(_MAX_QUESTIONS)
    self._answers, self._needles = cache(self._usable), cache(self._prepare)

  def find(
    self,
    block_ids: Int[np.ndarray, 'b c'],
    questions: Sequence[question_files.Question | None],
  ) -> Bool[np.ndarray, 'b c']:
    """Return whether each block (-1: none) contains an answer of its question."""
    contained = np.zeros(block_ids.shape, bool)
    for row, ids, question in zip(contained, block_ids, questions, strict=True):
      there = np.flatnonzero(ids >= 0)
      answers = self._answers(question) if question else ()
      if len(there) and answers:
        rule = self._rules[question.kind]
        row[there] = self._search(rule, ids[there].astype(np.int64), answers)
    return contained

  def _usable(self, question: question_files.Question) -> tuple[str, ...]:
    """Return the answers that not every text contains."""
    rule = self._rules[question.kind]
    usable = answers_lib.usable(rule, question.answers)
    if others := [x for x in question.answers if x not in usable]:
      logging.warning(
        'Question %s, %r: answers %s: nothing to look for by the rule %r.',
        *(question.id, question.question, others, rule.name),
      )
    return usable

  def _prepare(self, rule: str, answers: tuple[str, ...]) -> list[bytes]:
    """Return runs of bytes to search for; b'' is in every text."""
    if rule == 'substring':  # Half a surrogate pair is in no text.
      return [x.encode('utf-8', 'surrogatepass') for x in answers]
    return [*map(_ascii_word, answers)] if rule == 'dpr' else [b'']

  def _search(self, rule, ids, answers) -> np.ndarray:
    texts, needles = self._texts(ids), self._needles(rule.name, answers)
    folded = texts
    if rule.name != 'substring':
      folded = [text.lower().replace(_KELVIN, b'k') for text in texts]
    hits = [
      i for i, x in enumerate(folded) if any(needle in x for needle in needles)
    ]
    prepared = rule.prepare([texts[i].decode() for i in hits])
    contained = np.zeros(len(ids), bool)
    contained[hits] = [*map(rule.compile(answers), prepared)]
    return contained

  def _texts(self, ids: np.ndarray) -> list[bytes]:
    documents = self._blocks.documents(ids)
    shards, rows = self._text_end.locate(documents)
    before = self._text_end[np.maximum(documents - 1, 0)]
    starts = np.where(rows > 0, before, 0)[:, None]
    spans = (starts + self._blocks.byte_spans[ids]).tolist()
    data = {x: memoryview(self._text.shard(x)) for x in {*shards.tolist()}}
    pairs = zip(shards.tolist(), spans, strict=True)
    return [bytes(data[shard][start:end]) for shard, (start, end) in pairs]


def _ascii_word(answer: str) -> bytes:
  """Return the longest ASCII word of an answer in lower case, or b''."""
  # Before another letter, the last one may be composed with it in the text.
  words = re.findall(
    r'[a-z0-9]+(?![^\0-\x7f])', ' '.join(answers_lib.folded_tokens(answer))
  )
  return max(words, key=len, default='').encode()
