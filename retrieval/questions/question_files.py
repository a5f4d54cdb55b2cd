# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Questions with their answers, from the published forms.

  jsonl: records {"question": ..., "answer": [...]}, as in the files of ORQA's splits;
    or "answers", or FlashRAG's "golden_answers"; optional "id". A line each, or a
    JSON list, as in DPR's files. One text is one answer, unless it is a list written
    as text (PopQA, or a list that went through CSV). {"text": [...]} and {"aliases":
    [...], "value": ...} are those of SQuAD and TriviaQA in `datasets`.
  table: such records in a Parquet or Arrow file.
  webquestions: a list of {"qId", "qText", "answers"}.
  curatedtrec: a line of id, type, question and regular expression, with tabs.
  opentriviaqa: jsonl with "open_domain"; a question with false is skipped, since its
    answer depends on its choices.
  squad: SQuAD 1.1 or 2.0, without its paragraphs.
  triviaqa: TriviaQA's unfiltered {"Data": [...]}; an answer's aliases count.
  dpr_qas: a line of question, tab and Python list of answers, as in DPR's .qas.csv.

Files may be packed as .gz, .bz2, .xz or .zst. A question with an empty list of answers,
or with "is_impossible", cannot be answered, as some of SQuAD 2.0.
"""

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
import csv
import dataclasses
import functools
import os
import pathlib
import re
from typing import Any

from retrieval import arguments
from retrieval.readers import base, json_files, text_files


@dataclasses.dataclass(frozen=True)
class Question:
  """A question with its answers."""

  id: str  # unique id in the file
  question: str  # text, exactly as in the source
  # right answers, never blank; one string is one answer; none: it has no answer
  answers: tuple[str, ...]
  # 'string', or 'regex' where answers are regular expressions
  kind: str = 'string'

  def __post_init__(self):
    arguments.make_tuple(self, 'answers')


def read_questions(
  path: str | os.PathLike, answer_field: str = ''
) -> list[Question]:
  """Read the questions of a file in their order; its name and beginning tell the form.

  Raises:
    ValueError: for an unknown form, a file without questions, or the first
      invalid record.
  """
  path = pathlib.Path(path)
  kind = _form_of(path)
  form = _FORMS[kind]
  if answer_field:
    if kind not in ('jsonl', 'table'):
      raise ValueError(
        f'{path}: answer_field {answer_field!r} is of JSON lines and tables, not of '
        f'{kind}.'
      )
    form = dataclasses.replace(form, answers=(answer_field,))
  try:
    questions = _with_distinct_ids(
      (where, form.read(where, record)) for where, record in form.records(path)
    )
  except ValueError as e:
    raise ValueError(f'{e} The file is read as {kind}.') from None
  if not questions:
    raise ValueError(f'{path}: no questions; read as {kind}.')
  return questions


def _with_distinct_ids(
  questions: Iterable[tuple[str, Question]],
) -> list[Question]:
  by_id: dict[str, Question] = {}
  for where, question in questions:
    if question.id in by_id:
      raise ValueError(f'{where}: an earlier record has id {question.id!r}.')
    by_id[question.id] = question
  return list(by_id.values())


def _form_of(path: pathlib.Path) -> str:
  """Return the form of a file, by its name and beginning."""
  suffix = text_files.unpacked(path).suffix
  if suffix in ('.tsv', '.csv'):
    _, first = next(text_files.text_lines(path), ('', ''))
    two = first.count('\t') == 1
    return 'dpr_qas' if two or suffix == '.csv' else 'curatedtrec'
  if suffix in text_files.TABLES:
    return 'table'
  if suffix not in ('.jsonl', '.json'):
    raise ValueError(
      f'{path}: {suffix!r}, expected {", ".join(text_files.TABLES)}, or .jsonl, '
      '.json, .tsv or .csv, perhaps packed.'
    )
  start = next(text_files.pieces(path), '') if suffix == '.json' else ''
  if named := re.match(r'\s*\{[^][]*"(Data|data)"\s*:', start):
    return 'triviaqa' if named[1] == 'Data' else 'squad'
  _, first = next(json_files.read(path), ('', {}))
  if 'qText' in first:
    return 'webquestions'
  return 'opentriviaqa' if 'open_domain' in first else 'jsonl'


def read_asked(path: str | os.PathLike) -> list[Question]:
  """Read questions without answers, one a line; blank lines are skipped.

  A question without an id gets the id FILE:LINE.

  Args:
    path: .txt, or .jsonl with a "question" a line (BEIR's "_id" and "text", too, and
      the "query" of RAG-evaluation-harnesses, with its blanks), or .tsv with an id, a
      tab and a question a line (MS MARCO); may be packed.

  Raises:
    ValueError: for another kind of file, a file without questions, or the first
      line without a question, with another id than a text or a whole number, or
      with that of an earlier one.
  """
  if text_files.unpacked(path).suffix == '.tsv':
    rows = _columns(path, ('id', 'question'), text_files.PROMPT_BYTES)
  else:
    rows = json_files.read_prompts(path, 'question')
  return _with_distinct_ids(
    (where, _bare_question(where, record)) for where, record in rows
  )


def _bare_question(where: str, record: dict) -> Question:
  if 'question' not in record and '_id' in record:
    record = {'id': record['_id'], 'question': record.get('text')}
  name = 'query' if 'query' in record else 'question'
  text = _text(base.field(record, name, where), where, name)
  identifier = record.get('id')
  if identifier is None:
    identifier = text_files.line_name(where)
  identifier = _text(base.named(identifier), where, 'id')
  return Question(identifier, text if name == 'query' else text.strip(), ())


def _columns(
  path: str | os.PathLike,
  names: Sequence[str],
  limit: int = text_files.RECORD_BYTES,
) -> Iterator[tuple[str, dict]]:
  """Read lines of fields with tabs between; the last field may hold tabs itself."""
  for where, line in text_files.text_lines(path, limit):
    fields = line.split('\t', len(names) - 1)
    if len(fields) != len(names):
      expected = f'{len(fields)} fields, expected {", ".join(names)}'
      raise ValueError(f'{where}: {expected} with tabs between.')
    yield where, dict(zip(names, fields, strict=True))


# Two texts of a list that NumPy printed.
_UNDIVIDED = re.compile(r"""(?<!\\)(['"])\s+\1(?!\s*[],])""")


@dataclasses.dataclass(frozen=True)
class _Form:
  """Where a published form keeps its questions."""

  # path -> (place, record) of each question
  records: Callable[[pathlib.Path], Iterator[tuple[str, dict]]]
  id: str = 'id'
  question: str = 'question'
  answers: Sequence[str] = ('answers',)  # names, of which a record has one
  kind: str = 'string'

  def read(self, where: str, record: dict) -> Question:
    """Return the question of a record, or raise ValueError."""
    names = [name for name in self.answers if name in record]
    if len(names) != 1:
      there = names or f'only {base.brief(sorted(record))}'
      raise ValueError(
        f'{where}: expected one of the fields {list(self.answers)}, not {there}.'
      )
    [name] = names
    answers = record[name]
    if isinstance(answers, dict):
      inner = next((x for x in ('text', 'aliases') if x in answers), name)
      listed = answers.get(inner)
      answers = answers.get('value', listed) if listed == [] else listed
    if isinstance(answers, str):
      answers = [answers]
    answers = base.items({name: answers}, name, where)
    if record.get('is_impossible') is True:
      answers = []
    texts = [
      _text(text, where, f'{name}[{i}]')
      for i, answer in enumerate(answers)
      for text in _listed(answer, where, name)
    ]
    made = {'id': text_files.line_name(where)} if self.id == 'id' else {}
    identifier = base.named(base.field(made | record, self.id, where))
    question = base.field(record, self.question, where)
    return Question(
      _text(identifier, where, self.id),
      _text(question, where, self.question),
      tuple(dict.fromkeys(texts)),
      self.kind,
    )


def _listed(answer: Any, where: str, name: str) -> list[Any]:
  """Return the answers of a list that is written as text, else the one answer."""
  if not isinstance(answer, str) or not re.fullmatch(
    r'\s*\[.*\]\s*', answer, re.DOTALL
  ):
    return [answer]
  try:
    answers = ast.literal_eval(answer.strip())
  except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
    return [answer]
  if not all(isinstance(x, str) for x in answers):
    return [answer]
  if _UNDIVIDED.search(answer):
    raise ValueError(
      f'{where}: field {name!r} {base.brief(answer)}: a list without commas.'
    )
  return answers


def _text(value: Any, where: str, name: str = 'question') -> str:
  text = base.string({name: value}, name, where)
  if not text.strip():
    raise ValueError(f'{where}: field {name!r} is blank, expected text.')
  if len(text) > text_files.PROMPT_BYTES:
    raise text_files.too_long(
      f'{where}, field {name!r}', text_files.PROMPT_BYTES
    )
  return text


def _opentriviaqa(path: pathlib.Path) -> Iterator[tuple[str, dict]]:
  for where, record in json_files.read(path):
    is_open = record.get('open_domain')
    if not isinstance(is_open, bool):
      raise ValueError(
        f"{where}: field 'open_domain' {is_open!r}: expected true or false."
      )
    if is_open:
      yield where, record


def _squad(path: pathlib.Path) -> Iterator[tuple[str, dict]]:
  for where, article in json_files.read(path, 'data'):
    for paragraph in base.items(article, 'paragraphs', where):
      for record in base.items(paragraph, 'qas', where):
        record = base.check_type(record, where, dict)
        place = f'{path}, question {record.get("id")}'
        answers = [
          base.check_type(answer, place, dict).get('text')
          for answer in base.items(record, 'answers', place)
        ]
        yield place, {**record, 'answers': answers}


def _triviaqa(path: pathlib.Path) -> Iterator[tuple[str, dict]]:
  for where, record in json_files.read(path, 'Data'):
    answer = base.check_type(record.get('Answer'), f'{where}, Answer', dict)
    aliases = base.items(answer, 'Aliases', where)
    # A few aliases are blank.
    aliases = [x for x in aliases if not isinstance(x, str) or x.strip()]
    if not aliases and answer.get('Value'):
      aliases = [answer['Value']]
    yield where, {**record, 'Aliases': aliases}


def _dpr_qas(path: pathlib.Path) -> Iterator[tuple[str, dict]]:
  for where, line in text_files.text_lines(path):
    try:
      fields = next(csv.reader([line], delimiter='\t'))
    except csv.Error as e:
      raise ValueError(f'{where}: not CSV ({e}).') from None
    if len(fields) != 2:
      raise ValueError(
        f'{where}: {len(fields)} fields, expected question and answers with a '
        'tab between.'
      )
    answers = _listed(fields[1], where, 'answers')
    if answers == [fields[1]]:
      answers = base.items({'answers': fields[1]}, 'answers', where)
    yield where, {'question': fields[0], 'answers': answers}


def _table(path: pathlib.Path) -> Iterator[tuple[str, dict]]:
  from retrieval.readers import table_files

  for where, record in table_files.rows(path):
    yield where, {k: x for k, x in record.items() if x is not None}


_TREC = functools.partial(_columns, names=('id', 'type', 'question', 'regex'))
_ANSWERS = ('answer', 'answers', 'golden_answers')
_FORMS = {
  'jsonl': _Form(json_files.read, answers=_ANSWERS),
  'webquestions': _Form(json_files.read, 'qId', 'qText'),
  'curatedtrec': _Form(_TREC, answers=('regex',), kind='regex'),
  'table': _Form(_table, answers=_ANSWERS),
  'opentriviaqa': _Form(_opentriviaqa, answers=_ANSWERS),
  'squad': _Form(_squad),
  'triviaqa': _Form(_triviaqa, 'QuestionId', 'Question', ('Aliases',)),
  'dpr_qas': _Form(_dpr_qas),
}
