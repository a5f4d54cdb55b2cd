# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Search of whole beams for blocks with an answer, by each rule of `answers`.

A training step of ORQA tests 5000 blocks for each question (Lee et al. 2019,
section 3.4). The search joins the stored bytes, or tokens, of all blocks and
looks for substrings that every block with an answer contains. Only blocks with
a hit take the rule's own test.
"""

import bisect
from collections.abc import Callable, Sequence
import functools
from re import _constants as constants, _parser as parser
from typing import Any

from absl import logging
from jaxtyping import Bool, Int
import numpy as np

from retrieval.questions import (
  answers as answers_lib,
  questions as questions_lib,
)
from retrieval.text import blocks as blocks_lib
from retrieval.tokenization import base

_END = b'\xff'  # occurs in no UTF-8 text
_SIGMA = '\N{GREEK CAPITAL LETTER SIGMA}'.encode()
# Letters beyond ASCII that match an ASCII letter without regard to case, and that
# `answers.fold` does not change.
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
    """Open the arrays of the blocks.

    Args:
      rule: one of `answers.RULES`.
      tokenizer: tokenizer of `blocks`, which 'wordpiece' needs.

    Raises:
      ValueError: for an unknown rule, or 'wordpiece' without its tokenizer.
    """
    self.rule = answers_lib.make_rule(rule, tokenizer)
    self._blocks, self._tokenizer = blocks, tokenizer
    if rule == 'wordpiece':
      blocks.tokens.check_tokenizer(tokenizer)
    names = ('token_end', 'tokens')
    if rule != 'wordpiece':
      names = ('text_end', 'text')
    self._ends, self._data = map(blocks.tokens.store.array, names)
    counts = blocks.tokens.store.rows('token_end')
    self._first_document = np.cumsum([0, *counts])
    # Every epoch repeats the questions.
    prepare = _PREPARE.get(rule, self._token_runs)
    self._prepare = functools.lru_cache(_MAX_QUESTIONS)(prepare)

  def find(
    self, block_ids: Int[np.ndarray, 'b c'], answers: Sequence[Sequence[str]]
  ) -> Bool[np.ndarray, 'b c']:
    """Return [b, c] bool: whether each block contains an answer.

    Args:
      block_ids: [b, c] block ids; -1 for none, which contains no answer.
      answers: [b] answers of each question; regular expressions for 'regex'.

    Raises:
      ValueError: for an answer that every text contains.
    """
    found = np.zeros(block_ids.shape, bool)
    by_tokens = self.rule.name == 'wordpiece'
    search = self._by_tokens if by_tokens else self._by_text
    for hits, row, wanted in zip(found, block_ids, answers, strict=True):
      there = np.flatnonzero(row >= 0)
      if len(there) and len(wanted):
        hits[there] = search(row[there].astype(np.int64), tuple(wanted))
    return found

  def _by_text(self, ids: np.ndarray, wanted: tuple[str, ...]) -> np.ndarray:
    holds = self.rule.compile(wanted)
    needles = self._prepare(wanted)
    order, parts = self._read(ids, self._blocks.byte_spans(ids))
    text = raw = _END.join([*parts, b''])
    ends = raw_ends = _ends(raw)
    if self.rule.name != 'substring':
      text = _fold(raw, raw_ends)
      ends = _ends(text)
    test = {
      'substring': None,
      'dpr': lambda i: holds(_cut(text, ends, i)),
      'regex': lambda i: holds(answers_lib.decompose(_cut(raw, raw_ends, i))),
    }[self.rule.name]
    found = np.zeros(len(ids), bool)
    found[order] = _scan(text, ends, needles, test)
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

  Attributes:
    refused: (question's id, answer) of these answers so far.
  """

  def __init__(
    self,
    blocks: blocks_lib.BlockStore,
    rule: str,
    tokenizer: base.Tokenizer | None = None,
  ):
    """Open the arrays of the blocks.

    Args:
      rule: rule of answers that are strings, one of `answers.RULES`.
      tokenizer: tokenizer of `blocks`, which 'wordpiece' needs.
    """
    self._searches = {
      'string': AnswerSearch(blocks, rule, tokenizer),
      'regex': AnswerSearch(blocks, 'regex'),
    }
    self.refused: set[tuple[str, str]] = set()
    self._wanted = functools.lru_cache(_MAX_QUESTIONS)(self._usable)

  def find(
    self,
    block_ids: Int[np.ndarray, 'b c'],
    questions: Sequence[questions_lib.Question | None],
  ) -> Bool[np.ndarray, 'b c']:
    """Return [b, c] bool: whether each block contains an answer.

    Args:
      block_ids: [b, c] block ids, -1 for none.
      questions: [b] questions; None has no answer.
    """
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
        if (question.id, answer) not in self.refused:
          logging.warning(
            'Question %s, %r: %s It counts for nothing by the rule %r.',
            question.id,
            question.question,
            e,
            rule.name,
          )
        self.refused.add((question.id, answer))
      else:
        kept.append(answer)
    return tuple(kept)


def _substring_needles(wanted: tuple[str, ...]) -> list[bytes]:
  # Half a surrogate pair is in no text.
  return [x.encode('utf-8', 'surrogatepass') for x in wanted]


def _dpr_needles(wanted: tuple[str, ...]) -> list[bytes]:
  runs = [answers_lib.folded_tokens(answers_lib.decompose(x)) for x in wanted]
  longest = {max(run, key=len) for run in runs}
  return [x.encode('utf-8', 'surrogatepass') for x in longest]


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

  Every match contains at least one of the runs, with letters in either case.
  None means that the runs are unknown.
  """
  texts = _alternatives(parser.parse(pattern))
  runs = [max(text.split(_GAP), key=len) for text in texts]
  return runs if all(runs) else None


def _alternatives(items: Any) -> list[str]:
  """Return the literal text of each alternative, with gaps for the rest."""
  texts = ['']
  for kind, value in items:
    found = [_GAP]
    if kind is constants.LITERAL and value < 128:
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


def _ends(text: bytes) -> np.ndarray:
  """Return the end of each block: [n]."""
  return np.flatnonzero(np.frombuffer(text, np.uint8) == _END[0])


def _cut(text: bytes, ends: np.ndarray, i: int) -> str:
  return text[int(ends[i - 1]) + 1 if i else 0 : int(ends[i])].decode()


def _fold(text: bytes, ends: np.ndarray) -> bytes:
  """Return `answers.fold` of every block of a joined text.

  Runs beyond ASCII fold one by one; a block with a capital sigma folds as a whole.
  """
  points = np.frombuffer(text, np.uint8)
  odd = (points >= 0x80) & (points != _END[0])
  at = text.find(_SIGMA)
  while at >= 0:
    block = int(np.searchsorted(ends, at))
    odd[ends[block - 1] + 1 if block else 0 : ends[block]] = True
    at = text.find(_SIGMA, ends[block])
  # The text ends with _END, so every run has an end.
  bounds = np.flatnonzero(odd[1:] != odd[:-1]) + 1
  bounds = [0, *bounds.tolist()] if odd[:1].any() else bounds.tolist()
  if not bounds:
    return text.lower()
  lower, parts, done = text.lower(), [], 0
  for start, limit in zip(bounds[::2], bounds[1::2], strict=True):
    parts += [lower[done:start], _fold_run(text[start:limit])]
    done = limit
  return b''.join([*parts, lower[done:]])


@functools.lru_cache(1 << 14)
def _fold_run(run: bytes) -> bytes:
  return answers_lib.fold(run.decode()).encode()


def _scan(
  text: bytes,
  ends: np.ndarray,
  needles: Sequence[bytes],
  test: Callable[[int], bool] | None,
) -> np.ndarray:
  """Return [n] bool: whether each block contains a needle and passes the test."""
  limits = ends.tolist()
  seen, found = bytearray(len(limits)), np.zeros(len(limits), bool)
  for needle in needles:
    block, at = 0, text.find(needle)
    while 0 <= at and block < len(limits):
      block = bisect.bisect_left(limits, at, block)
      if block == len(limits):
        break
      if not seen[block]:
        seen[block] = True
        found[block] = test is None or test(block)
      at = text.find(needle, limits[block] + 1)
      block += 1
  return found
