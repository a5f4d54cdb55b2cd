# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Files of questions without answers: plain lines or JSON lines."""

import os
import pathlib

from retrieval.questions import questions
from retrieval.readers import base


def read(path: str | os.PathLike) -> list[questions.Question]:
  """Read a file of questions.

  A question without an id gets the id FILE:LINE.

  Args:
    path: .txt with a question a line, or .jsonl with a "question" a line; may be
      packed.

  Raises:
    FileNotFoundError: when there is no such file.
    ValueError: for another kind of file, a file without questions, or the first
      line without a question.
  """
  path = pathlib.Path(path)
  parse = base.parser_of(path, {'.txt': _plain, '.jsonl': _json})
  found, blank = [], ''
  for number, line in base.read_lines(path):
    where = f'{path}:{number}'
    text = base.decode(line, where).removeprefix('\ufeff').strip()
    if not text:
      blank = blank or where
      continue
    if blank:
      break
    fields = parse(text, where)
    found.append(
      questions.Question(
        fields.get('id', f'{path.name}:{number}'), fields['question'], ()
      )
    )
  else:
    blank = ''  # Blank lines end the file.
  if blank:
    raise ValueError(f'{blank}: the line is empty, expected a question.')
  if not found:
    raise ValueError(f'{path}: no questions.')
  return found


def _plain(line: str, where: str) -> dict[str, str]:
  del where
  return {'question': line}


def _json(line: str, where: str) -> dict[str, str]:
  row = base.parse_json(line.encode(), where, dict)
  fields = {'question': base.string(row, 'question', where).strip()}
  if not fields['question']:
    raise ValueError(f"{where}: field 'question' is empty, expected text.")
  if 'id' in row:
    fields['id'] = str(row['id'])
  return fields
