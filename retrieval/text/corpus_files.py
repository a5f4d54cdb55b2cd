# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The files of a corpus, and the kind of corpus that they tell."""

import fnmatch
import glob
import importlib
import itertools
import os
import pathlib
import re
import types
from typing import NamedTuple

from absl import logging

from retrieval.readers import base, text_files


class _Kind(NamedTuple):
  """A kind of corpus."""

  # patterns of its files' names, in lower case and without .gz
  names: tuple[str, ...]
  # module and function that read a file
  module: str
  function: str
  # settings of `CorpusConfig` and others that the function takes after the file
  arguments: tuple[str, ...]
  further: bool = False  # whether documents keep metadata
  wikipedia: bool = False  # whether documents are pages of Wikipedia


_SHARDS = ('*-of-[0-9]*', '*.tfrecord')
_JSON = ('*.jsonl', '*.ndjson', '*.json')
_RECORDS = ('fields', 'limit')
_TFDS = ('split', 'data_dir', 'fields')
_WIKI = ('unescape', 'limit')
# fmt: off
KINDS = {
  'arrow': _Kind(('*.arrow',), 'table_files', 'read', _RECORDS, True),
  'csv': _Kind(('*.csv',), 'files', 'read_csv', _RECORDS, True),
  'jsonl': _Kind(_JSON, 'files', 'read_jsonl', _RECORDS, True),
  'orqa_blocks': _Kind(('blocks.tfr',), 'orqa', 'read_blocks', (), False, True),
  'orqa_corpus': _Kind(_SHARDS, 'orqa', 'read_examples', ('body',), False, True),
  'parquet': _Kind(('*.parquet',), 'table_files', 'read', _RECORDS, True),
  'realm_pretraining': _Kind(_SHARDS, 'orqa', 'read_examples', ('text',), False, True),
  'squad': _Kind(('*.json',), 'files', 'read_squad', ('limit',), False, True),
  'text': _Kind(('*.txt',), 'files', 'read_text', ('limit',)),
  'tfds': _Kind((), 'tfds', 'read', _TFDS, True),
  'tsv': _Kind(('*.tsv',), 'files', 'read_tsv', _RECORDS, True),
  'vital': _Kind((), 'files', 'read_vital', ('fields',), True, True),
  'wikiextractor': _Kind(('wiki_*',), 'files', 'read_wikiextractor', _WIKI, False, True),
}
# fmt: on
# Corpus and questions of BEIR; only its corpus holds documents.
_BEIR = ('corpus.jsonl', 'queries.jsonl')
# Kinds that names do not tell; a .json file may be SQuAD's.
_UNTOLD = ('orqa_corpus', 'realm_pretraining', 'squad')
_SQUAD = re.compile(rb'\s*\{\s*"(version"\s*:\s*"[^"]*"\s*,\s*")?data"\s*:')
_HEAD = 1 << 10  # bytes that tell SQuAD's files


def reader(name: str) -> types.ModuleType:
  """Import a module of readers on demand."""
  return importlib.import_module(f'retrieval.readers.{name}')


def kind_of(path: str) -> str:
  """Return the one kind of corpus that names and first bytes of files tell."""
  kinds = {'arrow'} if reader('table_files').find_files(path) else set()
  if not kinds:
    root, names = _list(pathlib.Path(path))
    if not (names or pathlib.Path(path).exists()):
      raise FileNotFoundError(f'corpus.path {path!r}: no such file or folder.')
    kinds = {_kind(root, name) for name in names} - {''}
  if len(kinds) != 1:
    raise ValueError(
      f'corpus.path {path!r}: names of files tell the kinds {sorted(kinds)}; '
      'expected one, or corpus.kind.'
    )
  [kind] = kinds
  logging.info('%s: read as corpus.kind=%s.', path, kind)
  return kind


def _kind(root: pathlib.Path, name: str) -> str:
  kinds = (x for x in KINDS if x not in _UNTOLD and _is_of(x, name))
  kind = next(kinds, '')
  if text_files.unpacked(name).suffix == '.json':
    with text_files.open_bytes(root / name) as f:
      kind = 'squad' if _SQUAD.match(f.read(_HEAD)) else kind
  return kind


def find(kind: str, path: str, split: str) -> list[base.SourceFile]:
  """Return the files of a corpus, in the order of their documents.

  Args:
    kind: of `corpus.Kind`, but auto; tfds has none.
    path: a file, a folder or a glob.
    split: of a folder that `datasets` saved.
  """
  name, path = path, pathlib.Path(path)
  if kind == 'tfds':
    return []
  if kind == 'vital':
    file = reader('files').vital_file()
    return [base.SourceFile(file, file.name)]
  if kind == 'orqa_blocks':
    return reader('orqa').find_block_files(path)
  if kind == 'arrow' and path.is_dir():
    if parts := reader('table_files').find_files(path, split):
      return parts
  if path.is_file():
    return [base.SourceFile(path, path.name)]
  root, shown = _list(path)
  named = [x for x in shown if not path.is_dir() or _is_of(kind, x)]
  if not named:
    there = f'no file for kind {kind!r} there, {KINDS[kind].names}'
    if not path.is_dir():
      magic = glob.has_magic(str(path))
      there = 'no file of this name' if magic else 'no such file or folder'
    raise FileNotFoundError(f'corpus.path {name!r}: {there}.')
  if others := len(shown) - len(named):
    logging.info(
      '%s: %d files are not read; %s names its files %s.',
      *(root, others, kind, KINDS[kind].names),
    )
  return [base.SourceFile(root / name, name) for name in sorted({*named})]


def _list(path: pathlib.Path) -> tuple[pathlib.Path, list[str]]:
  """Return the folder of a file, folder or glob, and its visible files."""
  if path.is_dir():
    root, names = path, _names(path)
  else:
    parts = path.parent.parts
    plain = itertools.takewhile(lambda part: not glob.has_magic(part), parts)
    root = pathlib.Path(*plain)
    paths = [path] if path.is_file() else glob.glob(str(path), recursive=True)
    paths = (pathlib.Path(x) for x in paths)
    names = [p.relative_to(root).as_posix() for p in paths if p.is_file()]
  return root, [x for x in names if not any(y[0] == '.' for y in x.split('/'))]


def _is_of(kind: str, name: str) -> bool:
  """Whether a file has a name of a kind."""
  name = str(text_files.unpacked(name))
  return any(
    fnmatch.fnmatchcase(name, pattern) for pattern in KINDS[kind].names
  )


def _names(root: pathlib.Path) -> list[str]:
  """List a folder's files, also in linked folders, each folder once."""
  names, seen = [], set()
  for folder, inner, files in os.walk(root, onerror=_fail, followlinks=True):
    here, real = pathlib.Path(folder), os.path.realpath(folder)
    if real in seen:
      inner.clear()
      continue
    seen.add(real)
    plain = {str(text_files.unpacked(name)): name for name in files}
    if plain.keys() >= {*_BEIR}:
      files = [plain[_BEIR[0]]]
      inner.clear()
    inner.sort(key=lambda name: ((here / name).is_symlink(), name))
    paths = (here / name for name in files)
    names += [p.relative_to(root).as_posix() for p in paths if p.is_file()]
  return names


def _fail(error: OSError) -> None:
  if not isinstance(error, FileNotFoundError | NotADirectoryError):
    raise error  # a folder that may not be read
