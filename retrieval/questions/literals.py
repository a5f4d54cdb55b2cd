# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Literal substrings that every match of a regular expression contains.

Searching for them first is far cheaper than running the expression.
"""

import re

_COUNT = re.compile(r'\{\d*(,\d*)?\}')
_CLASSES = frozenset('dDsSwWbB')


def needed(pattern: str) -> list[str] | None:
  """Return one run of ASCII characters for each alternative of a valid pattern.

  Every match contains at least one of the runs, with letters in either case.
  None means that the runs are unknown.
  """
  runs = []
  for atoms in _alternatives(pattern) or [[]]:
    text = ''.join(atom or '\0' for atom in atoms)
    longest = max(text.split('\0'), key=len)
    if not longest:
      return None
    runs.append(longest)
  return runs


def _alternatives(pattern: str) -> list[list[str]] | None:
  """Return top-level alternatives as atoms: a character, or '' for the rest.

  None means that the pattern has a construct that this parser does not follow.
  """
  found: list[list[str]] = [[]]
  at = 0
  while at < len(pattern):
    character, atoms = pattern[at], found[-1]
    at += 1
    if character == '|':
      found.append([])
    elif character == '(':
      at = _group_end(pattern, at)
      atoms.append('')
    elif character == '[':
      at = _class_end(pattern, at)
      atoms.append('')
    elif character == '\\':
      escaped = pattern[at]
      at += 1
      if escaped.isalnum() and escaped not in _CLASSES:
        return None
      atoms.append('' if escaped.isalnum() else _literal(escaped))
    elif character in '*?{':
      if character == '{':
        count = _COUNT.match(pattern, at - 1)
        if not count:
          return None
        at = count.end()
      atoms[-1:] = ['']
    elif character in '.^$+':
      atoms.append('')
    else:
      atoms.append(_literal(character))
    if at < 0:
      return None
  return found


def _literal(character: str) -> str:
  return character if character.isascii() and character != '\0' else ''


def _class_end(pattern: str, at: int) -> int:
  """Return the end of a character class whose content begins at `at`."""
  at += pattern.startswith('^', at)
  at += 1  # A leading bracket is a literal.
  if pattern[at - 1] == '\\':
    at += 1
  while pattern[at] != ']':
    at += 1 + (pattern[at] == '\\')
  return at + 1


def _group_end(pattern: str, at: int) -> int:
  """Return the end of a group whose content begins at `at`, or -1."""
  if pattern.startswith('?', at) and not pattern.startswith('?:', at):
    return -1
  while pattern[at] != ')':
    character = pattern[at]
    at += 1
    if character == '\\':
      at += 1
    elif character == '[':
      at = _class_end(pattern, at)
    elif character == '(':
      at = _group_end(pattern, at)
      if at < 0:
        return -1
  return at + 1
