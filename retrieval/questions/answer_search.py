# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Search of whole beams for blocks with an answer, by each rule of `answers`.

A training step of ORQA tests 5000 blocks for each question (Lee et al. 2019,
section 3.4). The search joins the stored bytes of all blocks and looks for ASCII
substrings that every block with an answer contains. Only blocks with a hit take the
rule's test.
"""

import bisect
from collections.abc import Sequence
import functools
import re

from absl import logging
from jaxtyping import Bool, Int
import numpy as np

from retrieval.questions import answers as answers_lib, question_files
from retrieval.text import blocks as blocks_lib

_END = b'\xff'  # occurs in no UTF-8 text
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
    counts = blocks.tokens.store.rows('token_end')
    self._first_document = np.cumsum([0, *counts])
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
    rule, usable = self._rules[question.kind], []
    for answer in question.answers:
      try:
        rule.compile((answer,))
      except ValueError as e:
        logging.warning(
          'Question %s, %r: %s It counts for nothing by the rule %r.',
          *(question.id, question.question, e, rule.name),
        )
      else:
        usable.append(answer)
    return tuple(usable)

  def _prepare(self, rule: str, answers: tuple[str, ...]) -> list[bytes]:
    """Return runs of bytes to search for; b'' is in every text."""
    if rule == 'substring':  # Half a surrogate pair is in no text.
      return [x.encode('utf-8', 'surrogatepass') for x in answers]
    return [*map(_ascii_word, answers)] if rule == 'dpr' else [b'']

  def _search(self, rule, ids, answers) -> np.ndarray:
    order, parts = self._read(ids)
    raw = text = _END.join([*parts, b''])
    if rule.name != 'substring':
      text = raw.lower().replace(_KELVIN, b'k')
    ends, hits = _ends(text), set()
    for needle in self._needles(rule.name, answers):
      at = text.find(needle)
      while 0 <= at < len(text):
        block = bisect.bisect_left(ends, at)
        hits.add(block)
        at = text.find(needle, ends[block] + 1)
    if rule.name != 'substring':
      holds, ends = rule.compile(answers), [-1, *_ends(raw)]
      texts = {i: raw[ends[i] + 1 : ends[i + 1]].decode() for i in hits}
      prepared = rule.prepare(texts.values())
      hits = [i for i, x in zip(texts, prepared, strict=True) if holds(x)]
    contained = np.zeros(len(ids), bool)
    contained[order[[*hits]]] = True
    return contained

  def _read(self, ids: np.ndarray) -> tuple[np.ndarray, list[memoryview]]:
    """Return the reading order of blocks, and their texts in that order."""
    spans, documents = self._blocks.byte_spans(ids), self._blocks.documents(ids)
    shards = np.searchsorted(self._first_document, documents, 'right') - 1
    order = np.lexsort((documents, shards))
    bounds = np.flatnonzero(np.diff(shards[order], prepend=-1, append=-1))
    parts = []
    for first, limit in zip(bounds[:-1], bounds[1:], strict=True):
      here = order[first:limit]
      shard = int(shards[here[0]])
      ends = self._text_end.shard(shard)
      local = documents[here] - self._first_document[shard]
      base = np.where(local, ends[np.maximum(local, 1) - 1], 0)
      rows = (base[:, None] + spans[here]).tolist()
      view = memoryview(self._text.shard(shard))
      parts += [view[a:b] for a, b in rows]
    return order, parts


def _ascii_word(answer: str) -> bytes:
  """Return the longest ASCII word of an answer in lower case, or b''."""
  # Before another letter, the last one may be composed with it in the text.
  words = re.findall(
    r'[a-z0-9]+(?![^\0-\x7f])', ' '.join(answers_lib.folded_tokens(answer))
  )
  return max(words, key=len, default='').encode()


def _ends(text: bytes) -> list[int]:
  """Return the end of each block."""
  points = np.frombuffer(text, np.uint8)
  return np.flatnonzero(points == _END[0]).tolist()
