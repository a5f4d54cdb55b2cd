# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The packaged reader over any documents, without training.

<workdir>/packaged.json names the documents and settings, <workdir>/data holds
the tokens and blocks.
"""

from collections.abc import Iterable, Mapping
import dataclasses
import json
import os
import pathlib
from typing import Any

from absl import logging
import jax
import ml_collections

from realm_jax.data import folder as data_folder
from realm_jax.nn import config as config_lib, initialize
from realm_jax.serving import model_configs
from realm_jax.serving.packages import packaged_reader, packaged_retriever
from retrieval import tokenization
from retrieval.formats import packed
from retrieval.nn import embedders, sharding
from retrieval.store import manifests, store
from retrieval.text import (
  blocks as blocks_lib,
  corpus as corpus_lib,
  tokens as tokens_lib,
)

FILE = 'packaged.json'
_DOCUMENTS = 'documents.jsonl'
_KEPT = ('blocks', 'index', 'lookup')  # sections that decide what is found


def unpack(
  workdir: str | os.PathLike = '',
  *,
  documents: Iterable[Mapping[str, str]] | None = None,
  corpus: corpus_lib.Corpus | corpus_lib.CorpusConfig | None = None,
  settings: Mapping[str, Any] | None = None,
) -> pathlib.Path:
  """Prepare documents for the packaged reader; return a folder to load.

  Unless `settings` names a retriever, blocks whose vectors come with the package
  are found by these, others by BM25.

  Args:
    workdir: output folder; '' is one in the user's cache.
    corpus: a corpus in place of `documents`; None is the packaged articles.
    settings: sections of the reader's config to replace, JSON values. A folder keeps
      the settings of its first use; a warning lists those of blocks, index and lookup
      that differ.

  Raises:
    FileNotFoundError: if the reader or the corpus is missing.
    ValueError: if the folder holds other documents, or both are given.
  """
  if documents is not None and corpus is not None:
    raise ValueError('documents and corpus are given: expected one of them.')
  made = packaged_reader.load_config()
  if documents is not None:
    lines = _lines(documents)
    key = store.fingerprint([made['tokenizer'], lines])
    workdir = pathlib.Path(workdir or packed.cache_folder('realm_jax', key))
    corpus = _write_documents(workdir, lines)
  named = getattr(corpus, 'config', corpus) or corpus_lib.CorpusConfig()
  named = dataclasses.asdict(named)
  if named['path'] and named['kind'] != 'tfds':  # others are files
    named['path'] = os.path.abspath(named['path'])
  changed = {'corpus': named} | dict(settings or {})
  workdir = pathlib.Path(
    workdir
    or packed.cache_folder(
      'realm_jax', store.fingerprint([made['tokenizer'], changed])
    )
  )
  if is_unpacked(workdir):
    saved = unpacked_config(workdir)
    check_corpus(workdir, saved, named)
    _tell_kept(workdir, saved.to_dict(), settings or {})
  config = ml_collections.ConfigDict(made['config'] | changed)
  blocks = _prepare(config, workdir, made['tokenizer'])
  if not is_unpacked(workdir):
    if packaged_retriever.covers(blocks):
      changed = {'retriever': 'dense'} | changed
    store.write_atomically(workdir / FILE, manifests.sealed(changed))
  return workdir


def is_unpacked(workdir: str | os.PathLike) -> bool:
  """Whether a folder was made by `unpack`."""
  return (pathlib.Path(workdir) / FILE).is_file()


def unpacked_config(workdir: str | os.PathLike) -> ml_collections.ConfigDict:
  """Return the config of the packaged reader with the folder's settings."""
  changed = manifests.read_json(pathlib.Path(workdir) / FILE)
  return ml_collections.ConfigDict(
    packaged_reader.load_config()['config'] | changed
  )


def start_embedder(config: config_lib.RealmConfig) -> dict[str, Any]:
  """Return parameters of embedders that start from all-MiniLM-L6-v2.

  Models with the packaged reader's embedder take the packaged one.

  Raises:
    FileNotFoundError: for another model, if all-MiniLM-L6-v2 is not installed.
  """
  if packaged_retriever.exists():
    made = ml_collections.ConfigDict(packaged_reader.load_config()['config'])
    own = model_configs.realm_config(made, config.embedder.vocab_size)
    if dataclasses.replace(own, encoder=config.encoder) == config:
      return packaged_retriever.load()
  folder = embedders.find_minilm()
  key = jax.random.split(jax.random.key(0))[0]
  return sharding.unbox(
    initialize.init_params(key, config, embedder=folder, parts='embedder')
  )


def _lines(documents: Iterable[Mapping[str, str]]) -> str:
  lines = []
  for i, document in enumerate(documents):
    row = {'id': f'{i}', 'title': ''} | dict(document)
    lines.append(json.dumps(row, ensure_ascii=False, sort_keys=True) + '\n')
  return ''.join(lines)


def _write_documents(
  workdir: pathlib.Path, lines: str
) -> corpus_lib.CorpusConfig:
  path = workdir / _DOCUMENTS
  if path.exists() and path.read_text(encoding='utf-8') != lines:
    raise ValueError(
      f'{workdir}: answers from other documents; expected another workdir, or '
      'this one removed.'
    )
  workdir.mkdir(parents=True, exist_ok=True)
  if not path.exists():
    store.write_atomically(path, lines.encode())
  return corpus_lib.CorpusConfig(kind='jsonl', path=str(path))


def _tell_kept(workdir: pathlib.Path, saved: Mapping, wanted: Mapping) -> None:
  """Warn where a folder keeps other settings than are wanted."""
  defaults, differ = packaged_reader.load_config()['config'], []
  for section in _KEPT:
    have = defaults.get(section, {}) | saved.get(section, {})
    for name, value in wanted.get(section, {}).items():
      if have.get(name, value) != value:
        differ.append(f'{section}.{name}={have[name]!r}, not {value!r}')
  if differ:
    logging.warning(
      '%s keeps the settings of its first use (%s); another workdir takes others.',
      workdir,
      '; '.join(differ),
    )


def check_corpus(
  workdir: pathlib.Path,
  config: ml_collections.ConfigDict,
  wanted: dict[str, Any],
) -> None:
  """Refuse another corpus (ValueError); warns of a changed file."""
  saved = config.corpus.to_dict()
  if saved != wanted:
    differ = [
      f'{k} {saved[k]!r}, not {wanted[k]!r}'
      for k in wanted
      if saved.get(k) != wanted[k]
    ]
    raise ValueError(
      f'{workdir}: answers from a corpus of {"; ".join(differ)}; expected '
      'another workdir, or this one removed.'
    )
  path, made = wanted['path'], workdir / 'data' / 'tokens'
  if (
    os.path.isfile(path)
    and made.exists()
    and os.path.getmtime(path) > made.stat().st_mtime
  ):
    logging.warning(
      '%s has changed since %s was made, which lacks the change; '
      'experiments.open_qa.update adds it.',
      path,
      made,
    )


def _prepare(
  config: ml_collections.ConfigDict, workdir: pathlib.Path, fingerprint: str
) -> blocks_lib.BlockStore:
  """Write tokens and blocks unless config.data_dir names prepared data."""
  data = data_folder.DataFolder.of(config, workdir)
  if not (config.data_dir or data.has_tokenizer):
    tokenizer = tokenization.WordPieceTokenizer(packaged_reader.FOLDER)
    tokenizer.save(data.tokenizer_path)
  if data.tokenizer.fingerprint != fingerprint:
    raise ValueError(
      f'The packaged reader has tokenizer {fingerprint}, {data.root} has '
      f'{data.tokenizer.fingerprint}; expected the same.'
    )
  if config.data_dir or data.path('blocks').exists():
    return data.blocks
  tokens = tokens_lib.build_token_store(
    data.path('tokens'),
    corpus_lib.Corpus(corpus_lib.CorpusConfig(**config.corpus)),
    data.tokenizer_path,
    with_title=False,
    with_text=True,
    **config.tokens,
  )
  blocks_lib.build_block_store(
    data.path('blocks'),
    tokens,
    data.tokenizer_path,
    num_processes=config.tokens.num_processes,
    **config.blocks,
  )
  return data.blocks
