# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The trained RETRO that comes with the package: 8 bits a parameter.

retro_jax/packaged/README.md documents it. Its datastore is made of the packaged
Wikipedia articles, which the first call tokenizes and indexes by their words (BM25) into a folder
of the user's cache, so that neither vectors nor an embedder are needed.
"""

import json
import os
import pathlib

from absl import logging
import ml_collections

from retrieval import tokenization
from retrieval.formats import packed
from retrieval.index import neighbors as neighbors_lib, sources
from retrieval.store import store
from retrieval.text import (
  chunks as chunks_lib,
  data_folder,
  tokens as tokens_lib,
)
from retro_jax.data import folder as retro_data
from retro_jax.nn import retro as model_lib
from retro_jax.trained import language_model, loading

NAME = 'packaged'  # in place of a run's folder
FOLDER = pathlib.Path(__file__).parents[1] / 'packaged'
_SOURCE = 'bm25'  # of the neighbors
_TOKENIZER = 'model'  # SentencePiece
# Settings of the config that the data depend on.
_DATA = (
  'corpus',
  'tokens',
  'model',
  'neighbors',
  'valid_fraction',
  'test_fraction',
)


def _model(folder: str | os.PathLike) -> packed.PackedModel:
  return packed.PackedModel(pathlib.Path(folder or FOLDER), 'retro')


def save(folder: str | os.PathLike, trained: loading.TrainedRetro) -> None:
  """Write a trained model in the packaged form.

  Raises:
    ValueError: for a tokenizer that is no SentencePiece model.
  """
  tokenizer = trained.data.tokenizer
  if not isinstance(tokenizer, tokenization.SentencePieceTokenizer):
    raise ValueError(
      f'{trained.data.tokenizer_path}: a {type(tokenizer).__name__}; expected '
      'SentencePiece, as experiments.retro.train_tokenizer makes it.'
    )
  config = json.loads(trained.config.to_json())
  config |= {'data_dir': '', 'retrofit_from': ''}  # paths of one machine
  config['neighbors'] |= {'source': _SOURCE, 'reranker': ''}
  made = _model(folder)
  made.folder.mkdir(parents=True, exist_ok=True)
  tokenizer.save(made.folder)
  facts = {
    'step': trained.step,
    'tokenizer': tokenizer.fingerprint,
    'config': config,
  }
  made.save(trained.params, facts, [_TOKENIZER])


def load(
  workdir: str | os.PathLike = '', folder: str | os.PathLike = ''
) -> loading.TrainedRetro:
  """Load the packaged model and prepare its datastore, if that is not done.

  Args:
    workdir: folder of the datastore; '' is one in the user's cache.
    folder: folder of the model; '' is the package's own.

  Raises:
    FileNotFoundError: when the model or the articles' package is missing.
    ValueError: when a file is damaged, or `workdir` holds other data.
  """
  model = _model(folder)
  made = model.load_config()
  config = ml_collections.ConfigDict(made['config'])
  if not workdir:
    settings = [made['tokenizer'], *(made['config'][x] for x in _DATA)]
    workdir = packed.cache_folder('retro_jax', store.fingerprint(settings))
  data = retro_data.DataFolder.of(config, workdir)
  if not data.words_path(_SOURCE).exists():
    logging.info('Preparing the articles of the packaged model in %s.', workdir)
  _prepare(config, data, model.folder)
  config.data_dir = str(data.root)
  module = model_lib.Retro(loading.model_config(config, data.vocab_size))
  return loading.TrainedRetro(
    config, data, module, model.load_params(), made['step']
  )


def packaged(workdir: str | os.PathLike = '') -> language_model.LanguageModel:
  """Return the RETRO that comes with the package; see `load`.

  The first call prepares the packaged articles, in about half a minute.
  """
  return language_model.LanguageModel(load(workdir))


def _prepare(
  config: ml_collections.ConfigDict,
  data: retro_data.DataFolder,
  folder: pathlib.Path,
) -> None:
  """Make the stores that are missing; a killed call continues."""
  tokenizer = tokenization.load_tokenizer(folder / _TOKENIZER)
  if not data.has_tokenizer:
    tokenizer.save(data.tokenizer_path)
  if data.tokenizer.fingerprint != tokenizer.fingerprint:
    raise ValueError(
      f'The packaged model has tokenizer {tokenizer.fingerprint}, {data.root} has '
      f'{data.tokenizer.fingerprint}; expected the same, or another workdir.'
    )
  tokens = tokens_lib.build_token_store(
    data.path('tokens'),
    data_folder.corpus(config.corpus),
    data.tokenizer_path,
    with_title=config.tokens.with_title,
    documents_per_shard=config.tokens.documents_per_shard,
  )  # in this process: a user's script may lack the guard of __main__
  held_out = chunks_lib.HELD_OUT if config.test_fraction else ('valid',)
  chunks = {
    split: chunks_lib.build_chunk_store(
      data.path(f'chunks-{split}'),
      tokens,
      chunk_length=config.model.chunk_length,
      split=split,
      valid_fraction=config.valid_fraction,
      test_fraction=config.test_fraction,
    )
    for split in ('train', *held_out)
  }
  sources.build_words(
    data.words_path(_SOURCE), chunks['train'], data.tokenizer, _SOURCE
  )
  for split in held_out:
    neighbors_lib.build_neighbor_store(
      data.neighbors_path(split),
      chunks[split],
      chunks['train'],
      data.neighbor_source(config),
      k=config.neighbors.stored,
    )
