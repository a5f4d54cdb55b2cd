# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs of a packed model over any documents, without training."""

from collections.abc import Callable, Collection, Iterable, Mapping
import dataclasses
import json
import os
import pathlib
import shutil
from typing import Any

from absl import logging

from retrieval import tokenization
from retrieval.readers import base
from retrieval.store import drafts, manifests, output_files, packed
from retrieval.text import corpus as corpus_lib, data_folder

_DOCUMENTS = 'documents.jsonl'
# Of the stores; another number makes the folders of the cache again.
_FORM = 2


def take(
  source: pathlib.Path,
  workdir: str | os.PathLike,
  library: str,
  prepare: Callable[[dict[str, Any], pathlib.Path], dict[str, Any]],
  *,
  documents: Iterable[Mapping[str, str]] | None = None,
  corpus: corpus_lib.Corpus | corpus_lib.CorpusConfig | None = None,
  settings: Mapping[str, Any] | None = None,
  compared: Collection[str] = (),
) -> pathlib.Path:
  """Make a packed model's run over documents; return its folder.

  The folder's weights are hard links, or copies.

  Args:
    source: the packed model.
    workdir: output folder; '' is one in the user's cache, by library and corpus.
    prepare: makes the data of (config, workdir); returns the config to save.
    documents: each with 'text' and perhaps 'title' and 'id'.
    corpus: in place of `documents`; without either, the corpus of the model's config.
    settings: sections of the config to replace. A folder keeps the settings of its
      first use.
    compared: sections of `settings` whose differences a warning lists.

  Raises:
    FileNotFoundError: if the model or the corpus is missing.
    ValueError: if the folder holds other documents, or for documents and corpus.
  """
  if documents is not None and corpus is not None:
    raise ValueError('documents and corpus: expected one of them.')
  facts, config = packed.read_facts(source), packed.read_config(source)
  changed = {'corpus': config['corpus']} | dict(settings or {})
  lines = None if documents is None else _lines(documents)
  if corpus is not None:
    named = dataclasses.asdict(getattr(corpus, 'config', corpus))
    if named['path'] and named['kind'] != 'tfds':  # others are files
      named['path'] = os.path.abspath(named['path'])
    changed['corpus'] = named
  key = manifests.fingerprint(
    [_FORM, facts.files, lines or changed['corpus'], dict(settings or {})]
  )
  workdir = pathlib.Path(workdir or cache(library) / key[:16])
  if lines is not None:
    path = _write_documents(workdir, lines)
    changed['corpus'] = dataclasses.asdict(
      corpus_lib.CorpusConfig(kind='jsonl', path=str(path))
    )
  config |= json.loads(json.dumps(changed))  # as it will be read
  if packed.is_packed(workdir):
    saved = packed.read_config(workdir)
    check_corpus(workdir, saved['corpus'], config['corpus'])
    differ = [
      f'{section}.{x}'
      for section in compared
      if section in (settings or {})
      for x in _different(saved[section], config[section])
    ]
    if differ:
      logging.warning(
        '%s keeps the settings of its first use (%s); another workdir takes '
        'others.',
        workdir,
        '; '.join(differ),
      )
    return workdir
  _take_tokenizer(source, pathlib.Path(config['data_dir'] or workdir / 'data'))
  config = prepare(config, workdir)
  workdir.mkdir(parents=True, exist_ok=True)  # data may lie elsewhere
  for file in facts.files:
    if file != packed.CONFIG:
      _link(packed.checked(source, file), workdir / file)
  output_files.write(workdir / packed.CONFIG, manifests.dump(config))
  packed.write_facts(workdir, facts, [packed.CONFIG])
  return workdir


def cache(library: str) -> pathlib.Path:
  """Folder of a library in the user's cache."""
  root = os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache'
  return pathlib.Path(root, library)


def check_corpus(
  workdir: str | os.PathLike, saved: Mapping[str, Any], asked: Mapping[str, Any]
) -> None:
  """Refuse another corpus than a run's (ValueError); warn of a changed file.

  A kind 'auto' is the one that it stands for, and a relative path its absolute one.
  """
  if differ := _different(*map(_spelled_out, (saved, asked))):
    raise ValueError(
      f'{workdir}: made of a corpus of {"; ".join(differ)}; expected another '
      'workdir, or this one removed.'
    )
  path, made = asked['path'], pathlib.Path(workdir) / 'data' / 'tokens'
  if (
    os.path.isfile(path)
    and made.exists()
    and os.path.getmtime(path) > made.stat().st_mtime
  ):
    logging.warning('%s has changed since %s was made.', path, made)


def _spelled_out(section: Mapping[str, Any]) -> dict[str, Any]:
  kind, path = section['kind'], section['path']
  if kind == 'auto' and (not path or os.path.exists(path)):
    kind = corpus_lib.CorpusConfig(path=path).resolved().kind
  if path and kind != 'tfds':
    path = os.path.abspath(path)
  return {**section, 'kind': kind, 'path': path}


def _different(saved: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
  """Describe the fields that both sections have and that differ."""
  return [
    f'{name} {saved[name]!r}, not {value!r}'
    for name, value in asked.items()
    if name in saved and saved[name] != value
  ]


def _take_tokenizer(source: pathlib.Path, root: pathlib.Path) -> None:
  """Copy the model's tokenizer into a data folder without one."""
  data = data_folder.DataFolder(root)
  tokenizer = tokenization.load_tokenizer(source)
  if not data.has_tokenizer:
    tokenizer.save(data.tokenizer_path)
  if data.tokenizer.fingerprint != tokenizer.fingerprint:
    raise ValueError(
      f'{source}: a model of tokenizer {tokenizer.fingerprint}, but {root} has '
      f'{data.tokenizer.fingerprint}; expected another workdir.'
    )


def _lines(documents: Iterable[Mapping[str, str]]) -> str:
  rows = []
  for i, document in enumerate(documents):
    where = f'documents[{i}]'
    if not isinstance(document, Mapping):
      raise ValueError(f"{where}: {document!r:.99}; expected {{'text': ...}}.")
    row = {'id': f'{i}', 'title': ''} | dict(document)
    base.Fields().document(row, where, '')  # refuses what is no document
    rows.append(json.dumps(row, ensure_ascii=False, sort_keys=True) + '\n')
  if not rows:
    raise ValueError('documents: none given; expected at least one.')
  return ''.join(rows)


def _write_documents(workdir: pathlib.Path, lines: str) -> pathlib.Path:
  path = workdir / _DOCUMENTS
  if not path.exists():
    workdir.mkdir(parents=True, exist_ok=True)
    output_files.write(path, lines.encode())
  elif path.read_text(encoding='utf-8') != lines:
    raise ValueError(
      f'{workdir}: made of other documents; expected another workdir, or this one '
      'removed.'
    )
  return path


def _link(source: pathlib.Path, target: pathlib.Path) -> None:
  """Make a second name of a file, or a copy; a killed call leaves no part of one."""
  draft = drafts.beside(target)
  try:
    os.link(os.path.realpath(source), draft)
  except OSError:  # Another file system, or one without links.
    shutil.copyfile(source, draft)
  os.replace(draft, target)
  draft.unlink(missing_ok=True)  # stays where both names were one file
