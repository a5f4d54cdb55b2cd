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


def detokenize(tokens):
  return ''.join(chr(97 + t) for t in tokens)


def prompts(*lengths, seed=0):
  rng = np.random.default_rng(seed)
  return [rng.integers(0, CONFIG.vocab_size, n).tolist() for n in lengths]


def as_prompts(rows):
  made = (
    x if isinstance(x, samples.Prompt) else samples.Prompt(x) for x in rows
  )
  return [*made]


def sample(prompts, retrieve=None, run=decode.sample, c=CONFIG, **settings):
  """Samples of greedy decoding, unless the settings say otherwise."""
  names = 'seed', 'row_numbers'
  how = {name: settings.pop(name) for name in names if name in settings}
  fields = {'temperature': 0.0, 'context_chunks': 8, 'max_new_tokens': 14}
  config = drawing.SamplingConfig(**fields | settings)
  return run(
    model.Retro(c),
    params(c),
    as_prompts(prompts),
    config,
    detokenize=detokenize,
    retrieve=retrieve,
    **how,
  )


def likeliest(sample, c=CONFIG):
  """Each new token of a sample, from one pass over the whole padded text."""
  grid = [0] * sample.padding + sample.tokens.tolist()
  size, end = 8 * M, sample.padding + sample.prompt_length
  row = np.zeros((1, size), np.int32)
  row[0, : len(grid)] = grid
  segments = np.ones_like(row)
  segments[0, : sample.padding] = 0
  how, found = {'segment_ids': segments}, sample.neighbors
  most = max((len(x.tokens) for x in found), default=0)
  read = samples.stack(found, size // M, (most, R))
  if c.joint:  # a prompt's last chunk reads its own neighbors
    entries = np.arange(-1, size // M, dtype=np.int32)
    entries[end // M - 1] = end // M - 1
    how['entries'] = np.where(entries < len(found), entries, -1)[None]
  arrays = (x[None] for x in read)
  logits = tiny.apply(c, params(c), row, *arrays, **how)[0]
  return np.argmax(logits[end - 1 : len(grid) - 1], axis=-1).tolist()


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
