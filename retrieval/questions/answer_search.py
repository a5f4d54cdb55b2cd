# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Search of whole beams for blocks with an answer, by each rule of `answers`.

A training step of ORQA tests 5000 blocks for each question (Lee et al. 2019,
section 3.4). The search joins the stored bytes, or tokens, of all blocks and
looks for ASCII substrings that every block with an answer contains. Only blocks
with a hit take the rule's own test.
"""

import bisect
from collections.abc import Sequence
import functools
import re
from re import _constants as constants, _parser as parser
from typing import Any

from absl import logging
from jaxtyping import Bool, Int
import numpy as np

from retrieval import arguments
from retrieval.questions import (
  answers as answers_lib,
  questions as questions_lib,
)
from retrieval.text import blocks as blocks_lib
from retrieval.tokenization import base

_END = b'\xff'  # occurs in no UTF-8 text
_KELVIN = '\N{KELVIN SIGN}'.encode()  # decomposed, a K; two others a ; and a `
# Letters beyond ASCII that match an ASCII letter without regard to case.
_LIKE_ASCII = ('\u0131'.encode(), '\u017f'.encode())
_MAX_QUESTIONS = 1 << 16  # size of the caches
_REPEATS = (constants.MAX_REPEAT, constants.MIN_REPEAT)
_GAP = '\0'  # between the literals of a pattern


class AnswerSearch:
  """Search by one rule for blocks with an answer, like `answers.has_answer`."""

  def __init__(
    self,
    blocks: blocks_lib.BlockStore,
    rule: str,
    tokenizer: base.Tokenizer | None = None,
  ):
    """Open the blocks; 'wordpiece' of `answers.RULES` needs their tokenizer."""
    self.rule = answers_lib.make_rule(rule, tokenizer)
    self._blocks, self._tokenizer = blocks, tokenizer
    if rule == 'wordpiece':
      blocks.tokens.check_tokenizer(tokenizer)
    kind = 'token' if rule == 'wordpiece' else 'text'
    arrays = blocks.tokens.store
    self._ends = arrays.array(f'{kind}_end')
    self._data = arrays.array('tokens' if kind == 'token' else kind)
    counts = blocks.tokens.store.rows('token_end')
    self._first_document = np.cumsum([0, *counts])
    # Every epoch repeats the questions.
    prepare = _PREPARE.get(rule, self._token_runs)
    self._prepare = functools.lru_cache(_MAX_QUESTIONS)(prepare)

  def find(
    self, block_ids: Int[np.ndarray, 'b c'], answers: Sequence[Sequence[str]]
  ) -> Bool[np.ndarray, 'b c']:
    """Return whether each block (-1: none) contains an answer of its row.

    Raises:
      ValueError: for an answer that every text contains.
    """
    answers = arguments.lists(answers, 'answers')
    found = np.zeros(block_ids.shape, bool)
    by_tokens = self.rule.name == 'wordpiece'
    search = self._by_tokens if by_tokens else self._by_text
    for hits, row, wanted in zip(found, block_ids, answers, strict=True):
      there = np.flatnonzero(row >= 0)
      if len(there) and len(wanted):
        hits[there] = search(row[there].astype(np.int64), tuple(wanted))
    return found

  def _by_text(self, ids: np.ndarray, wanted: tuple[str, ...]) -> np.ndarray:
    holds, needles = self.rule.compile(wanted), self._prepare(wanted)
    order, parts = self._read(ids, self._blocks.byte_spans(ids))
    raw = text = _END.join([*parts, b''])
    if self.rule.name != 'substring':
      text = raw.lower().replace(_KELVIN, b'k')
    ends, hits = _ends(text), set()
    for needle in needles:
      at = text.find(needle)
      while 0 <= at < len(text):
        block = bisect.bisect_left(ends, at)
        hits.add(block)
        at = text.find(needle, ends[block] + 1)
    if self.rule.name != 'substring':
      ends = [-1, *_ends(raw)]
      texts = {i: raw[ends[i] + 1 : ends[i + 1]].decode() for i in hits}
      prepared = self.rule.prepare(texts.values())
      hits = [i for i, x in zip(texts, prepared, strict=True) if holds(x)]
    found = np.zeros(len(ids), bool)
    found[order[[*hits]]] = True
    return found

  def _by_tokens(self, ids: np.ndarray, wanted: tuple[str, ...]) -> np.ndarray:
    order, parts = self._read(ids, self._blocks.token_spans(ids))
    tokens = np.frombuffer(b''.join(parts), self._blocks.tokens.tokens.dtype)
    ends = np.cumsum([part.nbytes for part in parts]) // tokens.itemsize
    hit = np.zeros(len(ids), bool)
    for run in self._prepare(wanted):
      at = np.flatnonzero(
        tokens[: max(len(tokens) - len(run) + 1, 0)] == run[0]
      )
      for offset, token in enumerate(run[1:].tolist(), start=1):
        at = at[tokens[at + offset] == token]
      owner = np.searchsorted(ends, at, 'right')
      hit[owner[at + len(run) <= ends[owner]]] = True
    found = np.zeros(len(ids), bool)
    found[order] = hit
    return found

  def _token_runs(self, wanted: tuple[str, ...]) -> list[np.ndarray]:
    self.rule.compile(wanted)  # refuses answers that every text contains
    return [e.ids for e in self._tokenizer.encode_batch(list(wanted))]

  def _read(
    self, ids: np.ndarray, spans: np.ndarray
  ) -> tuple[np.ndarray, list[memoryview]]:
    """Return the reading order of blocks, and views of their data in that order."""
    documents = self._blocks.documents(ids)
    shards = np.searchsorted(self._first_document, documents, 'right') - 1
    order = np.lexsort((documents, shards))
    bounds = np.flatnonzero(np.diff(shards[order], prepend=-1, append=-1))
    parts = []
    for first, limit in zip(bounds[:-1], bounds[1:], strict=True):
      here = order[first:limit]
      shard = int(shards[here[0]])
      ends = self._ends.shard(shard)
      local = documents[here] - self._first_document[shard]
      base = np.where(local, ends[np.maximum(local, 1) - 1], 0)
      rows = (base[:, None] + spans[here]).tolist()
      view = memoryview(self._data.shard(shard))
      parts += [view[a:b] for a, b in rows]
    return order, parts


class QuestionSearch:
  """Search for blocks with an answer, by the rule for each question's kind.

  An answer that every text contains matches nothing, with one warning.
  """

  def __init__(
    self,
    blocks: blocks_lib.BlockStore,
    rule: str,
    tokenizer: base.Tokenizer | None = None,
  ):
    """Open the blocks; `rule` is that of answers that are strings."""
    self._searches = {
      'string': AnswerSearch(blocks, rule, tokenizer),
      'regex': AnswerSearch(blocks, 'regex'),
    }
    self._wanted = functools.lru_cache(_MAX_QUESTIONS)(self._usable)

  def find(
    self,
    block_ids: Int[np.ndarray, 'b c'],
    questions: Sequence[questions_lib.Question | None],
  ) -> Bool[np.ndarray, 'b c']:
    """Return whether each block (-1: none) contains an answer of its question."""
    found = np.zeros(block_ids.shape, bool)
    for kind, search in self._searches.items():
      here = [i for i, q in enumerate(questions) if q and q.kind == kind]
      if here:
        wanted = [self._wanted(questions[i]) for i in here]
        found[here] = search.find(block_ids[here], wanted)
    return found

  def _usable(self, question: questions_lib.Question) -> tuple[str, ...]:
    """Return the answers that not every text contains."""
    rule, kept = self._searches[question.kind].rule, []
    for answer in question.answers:
      try:
        rule.compile((answer,))
      except ValueError as e:
        logging.warning(
          'Question %s, %r: %s It counts for nothing by the rule %r.',
          question.id,
          question.question,
          e,
          rule.name,
        )
      else:
        kept.append(answer)
    return tuple(kept)


def _substring_needles(wanted: tuple[str, ...]) -> list[bytes]:
  # Half a surrogate pair is in no text.
  return [x.encode('utf-8', 'surrogatepass') for x in wanted]


def _dpr_needles(wanted: tuple[str, ...]) -> list[bytes]:
  """Return [b''], found in every text, for an answer without an ASCII word."""
  needles = set()
  for answer in wanted:
    # Before another letter, the last one may be composed with it in the text.
    runs = re.findall(
      r'[a-z0-9]+(?![^\0-\x7f])', ' '.join(answers_lib.folded_tokens(answer))
    )
    needles.add(max(runs, key=len, default='').encode())
  return [*needles]


def _regex_needles(wanted: tuple[str, ...]) -> list[bytes]:
  """Return [b''], found in every text, where a pattern has no literal."""
  needles = set()
  for pattern in map(answers_lib.decompose, wanted):
    if answers_lib.compile_regex(pattern) is None:
      continue
    found = literals(pattern)
    if found is None:
      return [b'']
    needles |= {x.lower().encode() for x in found}
  return [*needles, *_LIKE_ASCII] if needles else []


# Rule -> answers -> substrings of the searched text, one of which every block with an
# answer contains.
_PREPARE = {
  'substring': _substring_needles,
  'dpr': _dpr_needles,
  'regex': _regex_needles,
}


def literals(pattern: str) -> list[str] | None:
  """Return one run of ASCII characters for each alternative of a valid pattern.

  Every match contains at least one of the runs, with letters in either case, and so
  does its composed form. None means that the runs are unknown.
  """
  runs = []
  for text in _alternatives(parser.parse(pattern)):
    # A mark may follow the last letter of a match, and be composed with it.
    parts = [re.sub('[A-Za-z<=>]$', '', part) for part in text.split(_GAP)]
    runs.append(max(parts, key=len))
  return runs if all(runs) else None


def _alternatives(items: Any) -> list[str]:
  """Return the literal text of each alternative, with gaps for the rest."""
  texts = ['']
  for kind, value in items:
    found = [_GAP]
    if kind is constants.LITERAL and value < 128 and chr(value) not in ';`':
      found = [chr(value)]
    elif kind is constants.SUBPATTERN:
      found = _alternatives(value[-1])
    elif kind is constants.BRANCH:
      found = [text for part in value[1] for text in _alternatives(part)]
    elif kind in _REPEATS and value[0]:
      found = [text + _GAP for text in _alternatives(value[-1])]
    if min(len(texts), len(found)) > 1:  # The product of both could be large.
      found = [_GAP]
    texts = [text + more for text in texts for more in found]
  return texts


def _ends(text: bytes) -> list[int]:
  """Return the end of each block."""
  points = np.frombuffer(text, np.uint8)
  return np.flatnonzero(points == _END[0]).tolist()
