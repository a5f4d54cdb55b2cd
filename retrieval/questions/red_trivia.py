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
# The bot's reading of answers that YAML parses as true or false.
_BOOLEANS = {True: ('True', 'Yes', 'On'), False: ('False', 'No', 'Off')}
_PICTURE = ('http://', 'https://')


class _Loader(getattr(yaml, 'CSafeLoader', yaml.SafeLoader)):
  """YAML loader that keeps numbers, dates and nulls as strings."""

  yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in forms if tag.endswith(':bool')]
    for first, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
  }


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
  try:
    records = yaml.load(path.read_bytes(), Loader=_Loader)
  except yaml.YAMLError as e:
    reason = ' '.join(str(e).split())
    raise ValueError(f'{path}: not YAML ({reason}).') from None
  questions = []
  for question, values in records.items():
    if isinstance(values, list):
      identifier = f'{path.stem}:{len(questions) + 1}'
      answers = _answers(values)
      questions.append(
        question_files.Question(identifier, str(question), answers)
      )
    elif question not in ('AUTHOR', 'DESCRIPTION'):
      raise ValueError(
        f'{path}, {question!r}: {values!r}; expected a list of answers.'
      )
  return questions


def _answers(values: list) -> tuple[str, ...]:
  """Return the answers as the bot reads them, without repeats in another case."""
  once: dict[str, str] = {}
  for value in values:
    texts = _BOOLEANS[value] if isinstance(value, bool) else [str(value)]
    for text in texts:
      if text.strip():
        once.setdefault(text.lower(), text)
  return tuple(once.values())
