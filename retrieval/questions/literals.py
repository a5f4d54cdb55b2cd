# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The letters that whatever matches a regular expression must hold.

Looking for them first is far cheaper than running the expression.
"""

import re

_COUNT = re.compile(r'\{\d*(,\d*)?\}')
_CLASSES = frozenset('dDsSwWbB')


def needed(pattern: str) -> list[str] | None:
  """One run of ASCII characters for each alternative of a pattern.

  Args:
    pattern: a valid regular expression.

  Returns:
    Runs of which every match holds at least one, its letters in either case, or
    None when that is not known.
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
  """Top-level alternatives as atoms: a character, or '' for anything else.

  Returns:
    None for constructs that are not followed here.
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
  """Past the end of a character class whose inside begins at `at`."""
  at += pattern.startswith('^', at)
  at += 1  # a bracket that comes first stands for itself
  if pattern[at - 1] == '\\':
    at += 1
  while pattern[at] != ']':
    at += 1 + (pattern[at] == '\\')
  return at + 1


def _group_end(pattern: str, at: int) -> int:
  """Past the end of a group whose inside begins at `at`; -1 if not followed."""
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
