# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Literal substrings that every match of a regular expression contains.

Searching for them first is far cheaper than running the expression.
"""

from re import _constants as constants, _parser as parser
from typing import Any

_REPEATS = (constants.MAX_REPEAT, constants.MIN_REPEAT)
_GAP = '\0'


def needed(pattern: str) -> list[str] | None:
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
