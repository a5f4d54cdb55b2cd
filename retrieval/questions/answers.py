# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Search for answers in texts, by the rules of published figures.

Figures by different rules are not comparable, so each rule has a name:

  substring: an answer is a raw, case-sensitive substring of the text. Every text
    with a 1 contains '1'. The HasAnswer op of ORQA (Lee et al. 2019, as released),
    which REALM's figures use.
  dpr: the answer's tokens are consecutive in the text. Unicode NFD, lower case; a
    token is a run of letters, digits and combining marks, or any other visible
    character. DPR's and DrQA's has_answer for strings.
  regex: the answer is a regular expression of Python's that matches anywhere, in
    either case. DPR's has_answer for CuratedTREC. A search that backtracks for
    ever is refused.
"""

from collections.abc import Callable, Iterable, Sequence
import contextlib
import dataclasses
import functools
import re
from typing import Any, Literal
import unicodedata

from absl import logging
import regex

# Rules of answers that are strings; 'regex' is that of regular expressions.
StringRule = Literal['substring', 'dpr']
RULES = ('substring', 'dpr', 'regex')
# What package regex takes for more than Python does: fuzzy matches such as {e<=1},
# and classes such as [[:digit:]].
_ONLY_IN_REGEX = re.compile(
  r'(?P<escape>\\.)|\{(?!(\d+(,\d*)?|,\d*)\})|(?<=\[):', re.DOTALL
)
_SEARCH_SEC = 2.0  # of CPU, for one text; good patterns take microseconds
_WORD, _BLANK = r'[\p{L}\p{N}\p{M}]', r'[\p{Z}\p{C}]'
_TOKEN = regex.compile(rf'{_WORD}+|[^\p{{Z}}\p{{C}}]')
_RUN = regex.compile(rf'{_WORD}+|[^\p{{L}}\p{{N}}\p{{M}}]+')


@dataclasses.dataclass(frozen=True)
class Rule:
  """A rule in two steps, each done once."""

  name: str
  prepare: Callable[[Iterable[str]], list[str]]  # texts -> prepared texts
  # a question's answers -> test of a prepared text. Raises ValueError for an
  # answer that every text contains.
  compile: Callable[[Sequence[str]], Callable[[str], bool]]


def make_rule(name: str) -> Rule:
  """Return the rule of a name of `RULES`."""
  if name == 'substring':
    return Rule(name, list, _substring_test)
  if name == 'dpr':
    return Rule(name, lambda texts: [fold(t) for t in texts], _dpr_test)
  if name != 'regex':
    raise ValueError(f'rule {name!r}: expected one of {RULES}.')
  return Rule(name, lambda texts: [decompose(t) for t in texts], _regex_test)


def usable(rule: Rule, strings: Sequence[str]) -> tuple[str, ...]:
  """Return the answers that a rule takes: not every text contains them."""
  taken = []
  for answer in strings:
    with contextlib.suppress(ValueError):
      rule.compile((answer,))
      taken.append(answer)
  return tuple(taken)


def _check(answer: str, needle: Sequence[str]) -> None:
  if not needle:
    raise ValueError(
      f'Answer {answer!r}: nothing to look for, all texts hold it.'
    )


def _substring_test(answers: Sequence[str]) -> Callable[[str], bool]:
  for answer in answers:
    _check(answer, answer)
  return lambda text: any(answer in text for answer in answers)


def decompose(text: str) -> str:
  """Return the Unicode NFD of a text, for 'dpr' and 'regex'."""
  return unicodedata.normalize('NFD', text)


def _regex_test(answers: Sequence[str]) -> Callable[[str], bool]:
  for answer in answers:
    _check(answer, answer)
  # DPR decomposes the pattern, too. That moves an accent out of its brackets and
  # turns '\é' into the unknown escape '\e'.
  compiled = [compile_regex(decompose(answer)) for answer in answers]
  patterns = [pattern for pattern in compiled if pattern]
  return lambda text: any(pattern.search(text) for pattern in patterns)


class Pattern:
  """An answer that is a regular expression, in either case.

  `search` returns the first match in a text, `match` one at its start, `find_all` a
  list of all; they raise ValueError where one text takes too long.
  """

  def __init__(self, pattern: str):
    # Python's re, which has no time limit, defines the syntax.
    re.compile(pattern)
    self._pattern = pattern
    same = _ONLY_IN_REGEX.sub(lambda x: x['escape'] or rf'\{x[0]}', pattern)
    flags = regex.IGNORECASE | regex.UNICODE | regex.MULTILINE
    compiled = regex.compile(same, regex.VERSION0 | flags)
    self.search = functools.partial(self._in_time, compiled.search)
    self.match = functools.partial(self._in_time, compiled.match)
    self.find_all = functools.partial(
      self._in_time, lambda *x, **how: [*compiled.finditer(*x, **how)]
    )

  def _in_time(self, find: Callable[..., Any], text: str) -> Any:
    try:
      return find(text, timeout=_SEARCH_SEC)
    except TimeoutError:
      raise ValueError(
        f'Answer {self._pattern!r}: its search in one text takes more than '
        f'{_SEARCH_SEC:g} s; expected a pattern that backtracks less.'
      ) from None


@functools.lru_cache(maxsize=8192)
def compile_regex(pattern: str) -> Pattern | None:
  """Compile an answer; None and one warning if it is invalid."""
  try:
    return Pattern(pattern)
  except (re.error, regex.error, OverflowError, RecursionError) as e:
    logging.warning('Answer %r matches nothing: %s.', pattern, e)
    return None


def folded_tokens(text: str) -> list[str]:
  """Return the lower-case tokens of DrQA's SimpleTokenizer."""
  return [token.lower() for token in _TOKEN.findall(decompose(text))]


def fold(text: str) -> str:
  """Decompose and lower a text as if token by token."""
  text = decompose(text)
  if '\N{GREEK CAPITAL LETTER SIGMA}' not in text:
    return text.lower()
  # The lower case of a sigma depends on its place in the token.
  return _RUN.sub(lambda run: run[0].lower(), text)


def _dpr_test(answers: Sequence[str]) -> Callable[[str], bool]:
  tests = []
  for answer in answers:
    tokens = folded_tokens(answer)
    _check(answer, tokens)
    # Most texts lack the longest token, and a search for it is cheap.
    tests.append((max(tokens, key=len), regex.compile(_in_a_row(tokens))))
  return lambda text: any(x in text and run.search(text) for x, run in tests)


def _in_a_row(tokens: Sequence[str]) -> str:
  """Return a pattern of whole tokens with blanks between them at most."""
  whole = [
    rf'(?<!{_WORD}){regex.escape(token)}(?!{_WORD})'
    if regex.match(_WORD, token)
    else regex.escape(token)
    for token in tokens
  ]
  return rf'{_BLANK}*'.join(whole)
