# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A model and a config small enough for the commands of kNN-LM in tests."""

import functools
import shutil

import ml_collections
import numpy as np

from configs import knn_lm_small
from retrieval.text import chunks as chunks_lib
from retro_jax.data import folder as retro_data
from retro_jax.nn import retro as model
from retro_jax.trained import loading
from tests.experiments.retro import tiny_retro
from tests.retro_jax.data import tiny_data
from tests.retro_jax.nn import tiny


def config(**fields) -> ml_collections.ConfigDict:
  """Of the commands; fields are of `knn_lm`."""
  found = knn_lm_small.get_config('test')
  found.model.chunk_length = tiny_data.M
  found.model.neighbor_length = tiny_data.R
  found.evaluate.update({'split': 'valid', 'max_documents': 0})
  found.knn_lm.tokens_per_shard = 80
  found.knn_lm.update(fields)
  return found


_params = functools.cache(tiny.params)


def trained(root, baseline=True, seed=0) -> loading.TrainedRetro:
  """A RETRO, or its baseline, with parameters at random."""
  sizes = tiny_retro.sizes(1, baseline)
  settings = config()
  settings.retrieval = not baseline
  return loading.TrainedRetro(
    config=settings,
    data=retro_data.DataFolder(root),
    model=model.Retro(sizes),
    params=_params(sizes, seed),
    step=20,
  )


def add_evaluation_set(root, folder, valid_fraction):
  """A copy of the data with a set 'some': a share of the same documents."""
  data, chunks = _with_chunks(root, folder, 'some', valid_fraction)
  rng = np.random.default_rng(1)
  tiny_data.write_neighbors(folder, 'some', chunks, data.chunks('train'), rng)
  return data


def hold_out(root, folder, valid_fraction):
  """A copy of the data, of which another share of the documents is held out."""
  return _with_chunks(root, folder, 'valid', valid_fraction)[0]


def _with_chunks(root, folder, name, valid_fraction):
  shutil.copytree(root, folder)
  shutil.rmtree(folder / f'chunks-{name}', ignore_errors=True)
  data = retro_data.DataFolder(folder)
  chunks = chunks_lib.build_chunk_store(
    folder / f'chunks-{name}',
    data.tokens,
    chunk_length=tiny_data.M,
    split='valid',
    valid_fraction=valid_fraction,
  )
  return data, chunks
