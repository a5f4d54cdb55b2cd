# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A model and a config small enough for the commands of kNN-LM in tests."""

import functools
import shutil

import numpy as np

from retrieval.text import chunks as chunks_lib
from retro_jax.data import folder as retro_data
from retro_jax.nn import retro as model
from retro_jax.trained import loading
from tests.experiments.retro import tiny_config, tiny_retro
from tests.retro_jax.data import tiny_data
from tests.retro_jax.nn import tiny


def config(fields=(), **knn_lm):
  """Of the commands; keywords are of `knn_lm`."""
  knn_lm = {'tokens_per_shard': 80} | knn_lm
  return tiny_config.tiny(
    'knn_lm_small',
    **{f'knn_lm.{name}': value for name, value in knn_lm.items()},
    **dict(fields),
  )


def evaluate(**fields):
  """How they are evaluated."""
  fields = {'split': 'valid', 'max_documents': 0} | fields
  return tiny_config.section('evaluate', 'knn_lm_small', **fields)


_params = functools.cache(tiny.params)


def trained(root, baseline=True, seed=0) -> loading.TrainedRetro:
  """A RETRO, or its baseline, with parameters at random."""
  sizes = tiny_retro.sizes(1, baseline)
  settings = config({'retrieval': not baseline})
  return loading.TrainedRetro(
    config=settings,
    data=retro_data.DataFolder(root),
    model=model.Retro(sizes),
    params=_params(sizes, seed),
    step=20,
  )


def add_evaluation_set(root, folder, valid_fraction):
  """A copy of the data with a set 'some': a share of the same documents."""
  shutil.copytree(root, folder)
  data = retro_data.DataFolder(folder)
  chunks = chunks_lib.build_chunk_store(
    folder / 'chunks-some',
    data.tokens,
    chunk_length=tiny_data.M,
    split='valid',
    valid_fraction=valid_fraction,
  )
  rng = np.random.default_rng(1)
  tiny_data.write_neighbors(folder, 'some', chunks, data.chunks('train'), rng)
  return data
