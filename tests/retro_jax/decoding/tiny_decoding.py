# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A small model to decode with, and a retriever for it."""

import functools

import numpy as np

from retro_jax.data import samples
from retro_jax.decoding import decode, drawing
from retro_jax.nn import retro as model
from tests.retro_jax.nn import tiny

CONFIG = tiny.config(num_layers=2, cca_layers=(1, 2))
M, R = CONFIG.chunk_length, CONFIG.neighbor_length

params = functools.cache(tiny.params)


def prompts(*lengths, seed=0):
  rng = np.random.default_rng(seed)
  return [rng.integers(0, CONFIG.vocab_size, n).tolist() for n in lengths]


def sample(prompts, retrieve=None, run=decode.sample, c=CONFIG, **settings):
  """Samples of greedy decoding, unless the settings say otherwise."""
  names = 'seed', 'detokenize', 'row_numbers'
  how = {name: settings.pop(name) for name in names if name in settings}
  fields = {'temperature': 0.0, 'context_chunks': 8, 'max_new_tokens': 14}
  config = drawing.SamplingConfig(**fields | settings)
  return run(
    model.Retro(c), params(c), prompts, config, retrieve=retrieve, **how
  )


class Retriever:
  """Neighbors that depend on every token of the chunk, some of them missing."""

  def __init__(self):
    self.rows = []

  def __call__(self, rows, k):
    self.rows += [tuple(np.asarray(row).tolist()) for row in rows]
    seeds = [hash(tuple(np.asarray(row).tolist())) % 2**32 for row in rows]
    rngs = [np.random.default_rng(seed) for seed in seeds]
    shape = (k, R)
    tokens = np.stack([r.integers(0, 23, shape, np.int32) for r in rngs])
    mask = np.stack([r.random(shape) < 0.8 for r in rngs])
    mask &= np.stack([r.random((k, 1)) < 0.7 for r in rngs])
    ids = np.stack([r.integers(0, 99, k) for r in rngs])
    titles = [[f'title {i}' for i in row] for row in ids]
    found = zip(ids, -1.0 * ids, tokens, mask, titles, strict=True)
    return [samples.ChunkNeighbors(*row) for row in found]
