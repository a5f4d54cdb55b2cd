# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Questions with their answers, from the published forms.

  jsonl: a line {"question": ..., "answer": [...]} as in the files of ORQA's splits;
    or "answers"; optional "id".
  webquestions: a list of {"qId", "qText", "answers"}.
  curatedtrec: a line of id, type, question and regular expression, with tabs.
  opentriviaqa: jsonl with "open_domain"; a question with false is skipped, since its
    answer depends on its choices.
  squad: SQuAD 1.1, whose paragraphs are not kept.
  triviaqa: TriviaQA's unfiltered {"Data": [...]}; an answer's aliases count.
  dpr_qas: a line of question, tab and Python list of answers, as in DPR's .qas.csv.

Files may be packed as .gz, .bz2 or .xz.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
import csv
import dataclasses
import functools
import itertools
import os
import pathlib
import re
from typing import Any

from absl import logging

from retrieval.readers import base

_PACKED = ('.gz', '.bz2', '.xz')


@dataclasses.dataclass(frozen=True)
class Question:
  """A question with its answers."""

  id: str  # unique id in the file
  question: str  # text, exactly as in the source
  answers: tuple[str, ...]  # right answers, never blank
  # 'string', or 'regex' where answers are regular expressions
  kind: str = 'string'


# (place, question) of each question of a file
_Found = Iterator[tuple[str, Question]]


def read_questions(
  path: str | os.PathLike, kind: str = 'auto', *, answer_field: str = ''
) -> list[Question]:
  """Read the questions of a file in their order.

  Args:
    kind: one of KINDS, or 'auto': by the file's name and beginning.
    answer_field: field of jsonl with the answers; '' is 'answer' or 'answers'.
      EfficientQA also has 'answer_and_def_correct_predictions'.

  Raises:
    ValueError: for an unknown kind, a file without questions, or the first
      invalid record.
  """
  if kind not in ('auto', *KINDS):
    raise ValueError(f'kind {kind!r}: expected auto or one of {KINDS}.')
  path = base.existing(path)
  kind = detect(path) if kind == 'auto' else kind
  read = _READERS[kind]
  if answer_field:
    if kind != 'jsonl':
      raise ValueError(f'{path}: {kind} has no field {answer_field!r}.')
    read = functools.partial(_read_jsonl, answer_field=answer_field)
  questions, places = [], {}
  for where, question in read(path):
    if question.id in places:
      first = places[question.id]
      raise ValueError(f'{where}: id {question.id!r} stood at {first} already.')
    places[question.id] = where
    questions.append(question)
  if not questions:
    raise ValueError(f'{path}: no questions; read as {kind}.')
  return questions


def detect(path: str | os.PathLike) -> str:
  """Return the kind of a file, by its name and beginning.

  Raises:
    ValueError: for an unknown ending of the name, and for an empty .json file.
  """
  path = base.existing(path)
  suffixes = path.suffixes
  if suffixes and suffixes[-1] in _PACKED:
    suffixes.pop()
  suffix = suffixes[-1] if suffixes else ''
  if suffix in ('.tsv', '.csv'):
    first = next(base.text_lines(path), ('', b''))[1]
    two = first.count(b'\t') == 1
    return 'dpr_qas' if two or suffix == '.csv' else 'curatedtrec'
  if suffix == '.jsonl':
    first = next(base.json_lines(path), ('', {}))[1]
    return 'opentriviaqa' if 'open_domain' in first else 'jsonl'
  if suffix == '.json':
    lines = itertools.islice(base.text_lines(path), 3)
    start = b' '.join(line[:1000].strip() for _, line in lines)
    if not start:
      raise ValueError(f'{path}: no questions; the file is empty.')
    if start.startswith(b'['):
      return 'webquestions'
    return 'triviaqa' if re.match(rb'{\s*"Data"', start) else 'squad'
  raise ValueError(
    f'{path}: the kind is not known by {suffix!r}; name one of {KINDS}.'
  )


def _text(record: Mapping[str, Any], name: str, where: str) -> str:
  text = base.string(record, name, where)
  if not text.strip():
    raise ValueError(f'{where}: field {name!r} is blank, expected text.')
  return text


def _answers(values: list, name: str, where: str) -> tuple[str, ...]:
  """Check a list of answers and drop repeated ones."""
  if not values:
    raise ValueError(f'{where}: field {name!r}: expected at least one answer.')
  texts = [
    _text({f'{name}[{i}]': value}, f'{name}[{i}]', where)
    for i, value in enumerate(values)
  ]
  return tuple(dict.fromkeys(texts))


def _question(
  record: Mapping[str, Any],
  id_name: str,
  name: str,
  where: str,
  answers: tuple[str, ...],
  kind: str = 'string',
) -> Question:
  identifier = _text(record, id_name, where)
  return Question(identifier, _text(record, name, where), answers, kind)


def _line_id(path: pathlib.Path, where: str) -> str:
  return f'{path.name}:{where.rpartition(":")[2]}'


def _line_question(
  record: dict, where: str, path: pathlib.Path, answer_field: str = ''
) -> Question:
  wanted = (answer_field,) if answer_field else ('answer', 'answers')
  names = [name for name in wanted if name in record]
  if len(names) != 1:
    raise ValueError(
      f'{where}: expected a field {" or ".join(map(repr, wanted))}, '
      f'found {sorted(record)}.'
    )
  values = base.items(record, names[0], where)
  identifier = record.get('id', _line_id(path, where))
  if isinstance(identifier, int):
    identifier = str(identifier)
  answers = _answers(values, names[0], where)
  record = {**record, 'id': identifier}
  return _question(record, 'id', 'question', where, answers)


def _read_jsonl(path: pathlib.Path, answer_field: str = '') -> _Found:
  for where, record in base.json_lines(path):
    yield where, _line_question(record, where, path, answer_field)


def _read_opentriviaqa(path: pathlib.Path) -> _Found:
  left_out = 0
  for where, record in base.json_lines(path):
    is_open = record.get('open_domain')
    if not isinstance(is_open, bool):
      raise ValueError(
        f"{where}: field 'open_domain': expected true or false, "
        f'found {is_open!r}.'
      )
    if is_open:
      yield where, _line_question(record, where, path)
    left_out += not is_open
  logging.info('%s: skipped %d that need their choices.', path, left_out)


def _read_webquestions(path: pathlib.Path) -> _Found:
  for where, record in base.objects(base.json_file(path, list), path):
    answers = _answers(base.items(record, 'answers', where), 'answers', where)
    yield where, _question(record, 'qId', 'qText', where, answers)


def _read_curatedtrec(path: pathlib.Path) -> _Found:
  names = ('id', 'type', 'question', 'regex')
  for where, line in base.text_lines(path):
    # A regular expression may hold a tab itself.
    fields = base.decode(line, where).split('\t', len(names) - 1)
    if len(fields) != len(names):
      raise ValueError(
        f'{where}: {len(fields)} fields, expected {", ".join(names)} with '
        'tabs between.'
      )
    record = dict(zip(names, fields, strict=True))
    regex = (_text(record, 'regex', where),)
    yield where, _question(record, 'id', 'question', where, regex, 'regex')


def _read_squad(path: pathlib.Path) -> _Found:
  where = str(path)
  for article in base.items(base.json_file(path, dict), 'data', where):
    for paragraph in base.items(article, 'paragraphs', where):
      for record in base.items(paragraph, 'qas', where):
        identifier = _text(base.check_type(record, where, dict), 'id', where)
        place = f'{path}, question {identifier}'
        answers = [
          base.check_type(answer, place, dict).get('text')
          for answer in base.items(record, 'answers', place)
        ]
        answers = _answers(answers, 'answers', place)
        yield place, _question(record, 'id', 'question', place, answers)


def _read_triviaqa(path: pathlib.Path) -> _Found:
  records = base.items(base.json_file(path, dict), 'Data', str(path))
  for where, record in base.objects(records, path):
    answer = base.check_type(record.get('Answer'), f'{where}, Answer', dict)
    # A few aliases are blank.
    aliases = [
      alias
      for alias in base.items(answer, 'Aliases', where)
      if not isinstance(alias, str) or alias.strip()
    ]
    answers = _answers(aliases, 'Aliases', where)
    yield where, _question(record, 'QuestionId', 'Question', where, answers)


def _read_dpr_qas(path: pathlib.Path) -> _Found:
  for where, line in base.text_lines(path):
    try:
      fields = next(csv.reader([base.decode(line, where)], delimiter='\t'))
    except csv.Error as e:
      raise ValueError(f'{where}: not CSV ({e}).') from None
    if len(fields) != 2:
      raise ValueError(
        f'{where}: {len(fields)} fields, expected question and answers with a '
        'tab between.'
      )
    try:
      values = ast.literal_eval(fields[1])
    except (ValueError, SyntaxError, MemoryError, RecursionError):
      values = None
    if not isinstance(values, list):
      raise ValueError(f'{where}: expected a list, found {fields[1]!r}.')
    record = {'id': _line_id(path, where), 'question': fields[0]}
    answers = _answers(values, 'answers', where)
    yield where, _question(record, 'id', 'question', where, answers)


def read_asked(path: str | os.PathLike) -> list[Question]:
  """Read questions without answers, one a line.

  A question without an id gets the id FILE:LINE.

  Args:
    path: .txt, or .jsonl with a "question" a line; may be packed.

  Raises:
    ValueError: for another kind of file, a file without questions, or the first
      line without a question.
  """
  path = pathlib.Path(path)
  parse = base.parser_of(
    path, {'.txt': lambda text, where: {'question': text}, '.jsonl': _asked}
  )
  found, blank = [], ''
  for number, line in base.read_lines(path):
    where = f'{path}:{number}'
    text = base.decode(line, where).removeprefix('\ufeff').strip()
    if text and blank:  # Only blank lines at the end may be.
      raise ValueError(f'{blank}: the line is empty, expected a question.')
    if text:
      fields = {'id': f'{path.name}:{number}', **parse(text, where)}
      found.append(Question(**fields, answers=()))
    else:
      blank = blank or where
  if not found:
    raise ValueError(f'{path}: no questions.')
  return found


def _asked(line: str, where: str) -> dict[str, str]:
  row = base.parse_json(line.encode(), where, dict)
  question = base.string(row, 'question', where).strip()
  if not question:
    raise ValueError(f"{where}: field 'question' is empty, expected text.")
  own = {'id': str(row['id'])} if 'id' in row else {}
  return {'question': question, **own}


_READERS: dict[str, Callable[[pathlib.Path], _Found]] = {
  'jsonl': _read_jsonl,
  'webquestions': _read_webquestions,
  'curatedtrec': _read_curatedtrec,
  'opentriviaqa': _read_opentriviaqa,
  'squad': _read_squad,
  'triviaqa': _read_triviaqa,
  'dpr_qas': _read_dpr_qas,
}
KINDS = tuple(_READERS)
