# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Trivia questions of the package Red-Trivia 1.1.1 (GPL-3), read as data.

Its YAML lists map a question to its answers. The package belongs to a chat bot
and is never imported.
"""

from collections.abc import Sequence
import pathlib

import yaml

from retrieval import arguments
from retrieval.questions import question_files
from retrieval.readers import files

VERSION = '1.1.1'
_PACKAGE = 'redbot'
_FOLDER = 'ext/trivia/lists'
# The bot's reading of each answer that YAML parses as true or false.
_BOOLEANS = {
  word.lower(): words
  for words in (('True', 'Yes', 'On'), ('False', 'No', 'Off'))
  for word in words
}
_PICTURE = ('http://', 'https://')


def folder() -> pathlib.Path:
  """Return the folder of the packaged lists, without importing their package."""
  title = 'The packaged trivia lists are'
  return files.packaged(_PACKAGE, _FOLDER, title, f'Red-Trivia=={VERSION}')


def read(lists: Sequence[str] = ()) -> list[question_files.Question]:
  """Read packaged lists; a question gets the id LIST:NUMBER, counted from 1.

  Questions about a picture at a web address, or without an answer, are left out.

  Args:
    lists: names of the lists; () is all of them.

  Raises:
    ValueError: for an unknown list, or the first record without a question.
  """
  lists = arguments.listed(lists, 'lists')
  known = {path.stem: path for path in sorted(folder().glob('*.yaml'))}
  if unknown := [name for name in lists if name not in known]:
    raise ValueError(f'Unknown lists {unknown}: expected some of {[*known]}.')
  return [
    question
    for name in dict.fromkeys(lists or known)
    for question in _read_list(known[name])
    if question.answers and not any(x in question.question for x in _PICTURE)
  ]


def _read_list(path: pathlib.Path) -> list[question_files.Question]:
  loader = getattr(yaml, 'CBaseLoader', yaml.BaseLoader)  # all are strings
  try:
    records = yaml.load(path.read_bytes(), Loader=loader)
  except yaml.YAMLError as e:
    reason = ' '.join(str(e).split())
    raise ValueError(f'{path}: not YAML ({reason}).') from None
  questions = []
  for question, values in records.items():
    if isinstance(values, list):
      identifier = f'{path.stem}:{len(questions) + 1}'
      answers = _answers(values)
      questions.append(question_files.Question(identifier, question, answers))
    elif question not in ('AUTHOR', 'DESCRIPTION'):
      raise ValueError(
        f'{path}, {question!r}: {values!r}; expected a list of answers.'
      )
  return questions


def _answers(values: list[str]) -> tuple[str, ...]:
  """Return the answers as the bot reads them, without repeats in another case."""
  once: dict[str, str] = {}
  for value in values:
    for text in _BOOLEANS.get(value.lower(), [value]):
      if text.strip():
        once.setdefault(text.lower(), text)
  return tuple(once.values())
