# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The trained RETRO that comes with the package: 8 bits a parameter.

A packed model (`retrieval.store.packed`); retro_jax/packaged/README.md documents it.
Its datastore is made of the packaged Wikipedia articles, which the first call
tokenizes and indexes by their words (BM25) into a folder of the user's cache, so that
neither vectors nor an embedder are needed.
"""

from collections.abc import Iterable, Mapping
import dataclasses
import os
import pathlib

from absl import logging

from retrieval import settings, tokenization
from retrieval.index import neighbors as neighbors_lib
from retrieval.store import packed
from retrieval.text import (
  chunks as chunks_lib,
  corpus as corpus_lib,
  packed_runs,
  tokens as tokens_lib,
)
from retro_jax.data import folder as retro_data
from retro_jax.trained import loading

NAME = 'packaged'  # in place of a run's folder
FOLDER = pathlib.Path(__file__).parents[1] / 'packaged'
_SOURCE = 'bm25'  # of the neighbors
_TOKENIZER = 'model'  # SentencePiece


def pack(
  folder: str | os.PathLike, trained: loading.TrainedRetro, *, bits: int = 8
) -> None:
  """Write a trained model, which retrieves by words; `load` reads the folder.

  Args:
    bits: of a value, 8 or 32.

  Raises:
    ValueError: for a tokenizer that is no SentencePiece model, or in the folder of a
      packed model with another one.
  """
  folder, tokenizer = pathlib.Path(folder), trained.data.tokenizer
  if not isinstance(tokenizer, tokenization.SentencePieceTokenizer):
    raise ValueError(
      f'{trained.data.tokenizer_path}: a {type(tokenizer).__name__}; expected '
      'SentencePiece, as experiments.prepare makes it.'
    )
  config = dataclasses.asdict(trained.config)
  config |= {'task': 'retro', 'data_dir': ''}  # a path of one machine
  config['neighbors'] |= {'source': _SOURCE, 'reranker': ''}
  folder.mkdir(parents=True, exist_ok=True)
  if packed.is_packed(folder):  # its tokenizer file is replaced by an equal one
    there = packed.read_facts(folder).fingerprints['tokenizer']
    if there != tokenizer.fingerprint:
      raise ValueError(
        f'{folder}: holds a model with another tokenizer ({there}, not '
        f'{tokenizer.fingerprint}); expected another folder.'
      )
  tokenizer.save(folder)
  packed.write(
    folder,
    {'retro.safetensors': ('', trained.params)},
    config,
    step=trained.step,
    fingerprints={'tokenizer': tokenizer.fingerprint},
    bits=bits,
    others=[_TOKENIZER],
  )


def take(
  workdir: str | os.PathLike = '',
  source: pathlib.Path = FOLDER,
  *,
  documents: Iterable[Mapping[str, str]] | None = None,
  corpus: corpus_lib.Corpus | corpus_lib.CorpusConfig | None = None,
) -> pathlib.Path:
  """Make the run of a packed model over documents, as `packed_runs.take`."""

  def prepare(config, folder):
    made = settings.build(
      loading.RunConfig, config, 'config', ignore_others=True
    )
    _prepare(made, folder)
    return config

  return packed_runs.take(
    source, workdir, 'retro_jax', prepare, documents=documents, corpus=corpus
  )


def _prepare(config: loading.RunConfig, workdir: pathlib.Path) -> None:
  """Make the stores that are missing; a killed call continues."""
  data = retro_data.DataFolder.of(config, workdir)
  logging.info('Preparing the documents of a packed model in %s.', workdir)
  tokens = tokens_lib.build_token_store(
    data.path('tokens'),
    corpus_lib.Corpus(config.corpus),
    data.tokenizer_path,
    with_title=config.tokens.with_title,
    documents_per_shard=config.tokens.documents_per_shard,
  )  # in this process: a user's script may lack the guard of __main__
  chunks = {
    split: chunks_lib.build_chunk_store(
      data.path(f'chunks-{split}'),
      tokens,
      chunk_length=config.model.chunk_length,
      split=split,
      valid_fraction=config.valid_fraction,
      test_fraction=config.test_fraction,
    )
    for split in ('train', *config.held_out)
  }
  data.datastore.text_indices(config).words(_SOURCE)
  for split in config.held_out:
    neighbors_lib.build_neighbor_store(
      data.neighbors_path(split),
      chunks[split],
      chunks['train'],
      data.datastore.retriever(config),
      k=config.neighbors.stored,
    )
