# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Whether a text holds an answer, by the rules that published figures use.

Figures by different rules must not be compared, so each rule has a name:

  substring: an answer is a raw, case-sensitive substring of the text. '1' is in
    every text with a 1. The HasAnswer op of ORQA (Lee et al. 2019, as released),
    which REALM's figures use.
  dpr: the answer's tokens follow each other in the text. Unicode NFD, lower
    case; a token is a run of letters, digits and combining marks, or any other
    character that is no blank. DPR's and DrQA's has_answer for strings.
  regex: the answer is a regular expression, searched anywhere, without regard
    to case. DPR's has_answer for CuratedTREC.
  wordpiece: the answer's token ids follow each other among the text's. The
    has_answers of Hugging Face's REALM, and ORQA's gold spans.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import functools
import itertools
import re
from typing import Any
import unicodedata

from absl import logging
from jaxtyping import Bool
from jaxtyping import Int
import numpy as np

from retrieval.tokenization import base

RULES = ('substring', 'dpr', 'regex', 'wordpiece')


@dataclasses.dataclass(frozen=True)
class Rule:
  """One rule, in two steps so that neither is done twice.

  Attributes:
    name: one of RULES.
    prepare: texts -> the form of each that tests read.
    compile: a question's answers -> test of a prepared text. Raises ValueError
      for an answer that every text would hold.
  """

  name: str
  prepare: Callable[[Sequence[Any]], list[str]]
  compile: Callable[[Sequence[str]], Callable[[str], bool]]


def make_rule(name: str, tokenizer: base.Tokenizer | None = None) -> Rule:
  """Returns the rule of that name.

  Args:
    name: one of RULES.
    tokenizer: of 'wordpiece'; others need none.

  Raises:
    ValueError: for another name, or 'wordpiece' without a tokenizer.
  """
  if name == 'substring':
    return Rule(name, list, _substring_test)
  if name == 'dpr':
    return Rule(name, lambda texts: [fold(t) for t in texts], _dpr_test)
  if name == 'regex':
    return Rule(name, lambda texts: [decompose(t) for t in texts], _regex_test)
  if name != 'wordpiece':
    raise ValueError(f'Matching rule {name!r}: expected one of {RULES}.')
  if tokenizer is None:
    raise ValueError("Matching rule 'wordpiece' needs a tokenizer.")
  prepare = functools.partial(_encode, tokenizer)
  return Rule(name, prepare, lambda a: _run_test(a, prepare(a)))


def has_answer(
  texts: Sequence[Any],
  answers: Sequence[str],
  rule: str | Rule,
  tokenizer: base.Tokenizer | None = None,
) -> Bool[np.ndarray, ' n']:
  """Which texts hold at least one of a question's answers.

  Args:
    texts: [n] strings. For 'wordpiece' also their token ids; Hugging Face's
      REALM looks only at what the reader's input has room for.
    answers: strings, or regular expressions for 'regex'.
    rule: one of RULES, or made by `make_rule`.
    tokenizer: see `make_rule`.

  Returns:
    [n] bool.

  Raises:
    ValueError: for an unknown rule, or an answer that every text would hold.
  """
  if isinstance(rule, str):
    rule = make_rule(rule, tokenizer)
  test = rule.compile(answers)
  return np.array([test(text) for text in rule.prepare(texts)], bool)


class PreparedBlocks:
  """Blocks in the form that a rule reads, each prepared once while remembered.

  Attributes:
    rule: that reads them.
  """

  def __init__(
    self,
    rule: Rule,
    texts_of: Callable[[np.ndarray], Sequence[Any]],
    max_blocks: int = 200_000,
  ):
    """Prepares nothing yet.

    Args:
      rule: see `make_rule`.
      texts_of: [n] int64 block ids -> their texts, without titles.
      max_blocks: remembered at most, about a kilobyte each; those of one call
        are remembered however many they are.
    """
    self.rule = rule
    self._texts_of = texts_of
    self._max_blocks = max_blocks
    self._known: dict[int, str] = {}

  def get(self, ids: Int[np.ndarray, ' n']) -> list[str]:
    """The prepared texts of blocks."""
    wanted = np.asarray(ids, np.int64).tolist()
    missing = [i for i in dict.fromkeys(wanted) if i not in self._known]
    if missing and len(self._known) + len(missing) > self._max_blocks:
      self._known.clear()
      missing = list(dict.fromkeys(wanted))
    if missing:
      texts = self._texts_of(np.array(missing, np.int64))
      prepared = self.rule.prepare(texts)
      self._known.update(zip(missing, prepared, strict=True))
    return [self._known[i] for i in wanted]


def match_blocks(
  ids: Int[np.ndarray, 'b k'],
  answers: Sequence[Sequence[str]],
  blocks: PreparedBlocks,
) -> Bool[np.ndarray, 'b k']:
  """Which retrieved blocks hold an answer of their question.

  Args:
    ids: [b, k] block ids, -1 for none.
    answers: [b] answers of each question.
    blocks: where texts and rule come from.

  Returns:
    [b, k] bool, False where there is no block.

  Raises:
    ValueError: for other than b lists of answers, or see `has_answer`.
  """
  if len(answers) != len(ids):
    raise ValueError(f'{len(answers)} lists of answers for {len(ids)} rows.')
  unique = np.unique(ids[ids >= 0])
  texts = dict(zip(unique.tolist(), blocks.get(unique), strict=True))
  found = np.zeros(ids.shape, bool)
  for hits, row, wanted in zip(found, ids.tolist(), answers, strict=True):
    test = blocks.rule.compile(wanted)
    hits[:] = [i >= 0 and test(texts[i]) for i in row]
  return found


def _refuse(answer: str) -> None:
  raise ValueError(
    f'Answer {answer!r}: nothing to look for, all texts hold it.'
  )


def _run_test(answers: Sequence[str], runs: list[str]) -> Callable[[str], bool]:
  """Tests for any of the runs of characters that stand for the answers."""
  for answer, run in zip(answers, runs, strict=True):
    if not run:
      _refuse(answer)
  return lambda text: any(run in text for run in runs)


def _substring_test(answers: Sequence[str]) -> Callable[[str], bool]:
  return _run_test(answers, list(answers))


def _encode(tokenizer: base.Tokenizer, texts: Sequence[Any]) -> list[str]:
  """Token ids as characters: a run of ids is a substring then."""
  rows = list(texts)
  at = [i for i, row in enumerate(rows) if isinstance(row, str)]
  encodings = tokenizer.encode_batch([rows[i] for i in at]) if at else []
  for i, encoding in zip(at, encodings, strict=True):
    rows[i] = encoding.ids
  return [
    np.asarray(row, '<u4').tobytes().decode('utf-32-le', 'surrogatepass')
    for row in rows
  ]


def decompose(text: str) -> str:
  """The form in which 'dpr' and 'regex' read texts and answers."""
  return unicodedata.normalize('NFD', text)


def _regex_test(answers: Sequence[str]) -> Callable[[str], bool]:
  for answer in answers:
    if not answer:
      _refuse(answer)
  # As in DPR the pattern is decomposed too, which takes a letter with an accent
  # out of its brackets and makes '\é' the unknown escape '\e'.
  found = [compile_regex(decompose(answer)) for answer in answers]
  patterns = [pattern for pattern in found if pattern]
  return lambda text: any(pattern.search(text) for pattern in patterns)


@functools.lru_cache(maxsize=8192)
def compile_regex(pattern: str) -> re.Pattern | None:
  """Compiles an answer that is a regular expression.

  Args:
    pattern: the answer; decomposed where 'regex' searches it.

  Returns:
    None, with one warning, for what is no regular expression.
  """
  try:
    return re.compile(pattern, re.IGNORECASE | re.UNICODE | re.MULTILINE)
  except (re.error, OverflowError, RecursionError) as e:
    logging.warning('Answer %r matches nothing: %s.', pattern, e)
    return None


_KINDS = {'L': 'word', 'N': 'word', 'M': 'word', 'Z': 'blank', 'C': 'blank'}


def _kind(character: str) -> str:
  return _KINDS.get(unicodedata.category(character)[0], 'mark')


def _is_word(character: str) -> bool:
  return _kind(character) == 'word'


def folded_tokens(text: str) -> list[str]:
  """DrQA's SimpleTokenizer, lower case; `text` is decomposed."""
  tokens = []
  for kind, run in itertools.groupby(text, _kind):
    if kind == 'word':
      tokens.append(''.join(run).lower())
    elif kind == 'mark':
      tokens += [character.lower() for character in run]
  return tokens


def fold(text: str) -> str:
  """Decomposes and lowers a text as if token by token."""
  text = decompose(text)
  if '\N{GREEK CAPITAL LETTER SIGMA}' not in text:
    return text.lower()
  # The one letter whose lower case depends on its neighbors, so on the token.
  runs = itertools.groupby(text, _is_word)
  return ''.join(''.join(run).lower() for _, run in runs)


def _dpr_test(answers: Sequence[str]) -> Callable[[str], bool]:
  needles = [folded_tokens(decompose(answer)) for answer in answers]
  for answer, needle in zip(answers, needles, strict=True):
    if not needle:
      _refuse(answer)
  # Most texts lack the longest token, which is the cheapest thing to see.
  pairs = [(max(needle, key=len), needle) for needle in needles]
  return lambda text: any(w in text and _holds(text, n) for w, n in pairs)


def _holds(text: str, tokens: list[str]) -> bool:
  """Whether a folded text holds these tokens one after the other.

  Few texts hold an answer, and looking for its letters first is far cheaper than
  taking every text apart.
  """
  start = text.find(tokens[0])
  while start >= 0:
    if _holds_at(text, start, tokens):
      return True
    start = text.find(tokens[0], start + 1)
  return False


def _holds_at(text: str, start: int, tokens: list[str]) -> bool:
  end = start
  if start and _is_word(tokens[0][0]) and _is_word(text[start - 1]):
    return False
  for number, token in enumerate(tokens):
    while number and end < len(text) and _kind(text[end]) == 'blank':
      end += 1
    if not text.startswith(token, end):
      return False
    end += len(token)
    if end < len(text) and _is_word(token[0]) and _is_word(text[end]):
      return False
  return True
