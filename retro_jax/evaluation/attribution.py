# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Effect of neighbors on a text: repetition, attention, leaving one out.

The repetition of tokens is that of Borgeaud et al. 2022, appendix E.1, where texts
are colored by it; attention and leaving out are common means of attribution.

Dimension key: B batch, L tokens, C chunks, M chunk length, N neighbors, R
neighbor length, K complete chunks, P cross-attention layers, H heads.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int
import numpy as np

from retro_jax.data import pipeline
from retro_jax.evaluation import evaluate
from retro_jax.nn import losses, retro as model_lib


def readers(chunk: int, chunk_length: int, length: int) -> slice:
  """Positions below `length` that read a chunk's neighbors, its last token first.

  They predict the next chunk, token by token.
  """
  start = (chunk + 1) * chunk_length - 1
  return slice(min(start, length), min(start + chunk_length, length))


def repeated(row: pipeline.Row, chunk_length: int) -> Int[np.ndarray, 'B L']:
  """Length of the longest run that ends with each token and that a neighbor repeats.

  It stays in the token's document, and the neighbor is one of the chunk before. The
  paper's j is two less.
  """
  tokens, segments = np.asarray(row['tokens']), np.asarray(row['segment_ids'])
  out = np.zeros(tokens.shape, np.int64)
  for b, c in np.argwhere(np.any(row['neighbor_mask'], axis=(2, 3))).tolist():
    first = (c + 1) * chunk_length
    places = np.flatnonzero(segments[b] == segments[b, first - 1])
    places = places[places < first + chunk_length]
    neighbors = np.asarray(row['neighbors'][b, c])
    mask = np.asarray(row['neighbor_mask'][b, c])
    run = np.zeros(neighbors.shape, np.int64)
    for t in places[places >= first - neighbors.shape[-1]]:
      before = np.pad(run[:, :-1], ((0, 0), (1, 0)))
      run = np.where((neighbors == tokens[b, t]) & mask, before + 1, 0)
      if t >= first:
        out[b, t] = run.max()
  return out


@functools.partial(jax.jit, static_argnames='model')
def _shares(model, params, row):
  """Attention by neighbor, a mean over heads: [P, B, K, M, N]."""
  _, sown = losses.forward(model, params, row, mutable='weights')
  batch, _, *shape = row['neighbors'].shape
  layers = []
  for p in model.config.cca_layers:
    if model.config.joint:
      of_layer = sown['weights'][f'layer_{p}_attn']
    else:
      of_layer = sown['weights'][f'layer_{p}_cca']['cca']
    by_token = of_layer['attention']['weights'][-1].mean(axis=0)
    by_key = by_token.reshape(batch, -1, by_token.shape[1], *shape).sum(-1)
    if model.config.joint:  # beside the text; the first group reads no chunk's
      by_key = by_key[:, 1:] / by_key[:, 1:].sum(-1, keepdims=True).clip(1e-9)
    layers.append(by_key)
  return jnp.stack(layers)


def attention_shares(
  model: model_lib.Retro, params, row: pipeline.Row
) -> Float[np.ndarray, 'P B C N']:
  """Share of each layer's attention to neighbors that each of a chunk's gets.

  A mean over heads and over the tokens that read the chunk's neighbors; shares sum to
  one, or are zeros where nothing is read.
  """
  m = model.config.chunk_length
  keys = ('tokens', 'neighbors', 'neighbor_mask', 'segment_ids', 'entries')
  read = {k: row[k] for k in keys if k in row}
  shares = np.asarray(_shares(model, params, read))
  segments = np.asarray(row['segment_ids'])
  batch, num_chunks, num_neighbors, _ = row['neighbors'].shape
  out = np.zeros((len(shares), batch, num_chunks, num_neighbors), np.float32)
  for b, c in np.argwhere(np.any(row['neighbor_mask'], axis=(2, 3))).tolist():
    read = segments[b, readers(c, m, segments.shape[1])]
    reads = np.flatnonzero((read == read[:1]) & (read > 0))
    if len(reads):
      out[:, b, c] = shares[:, b, c, reads].mean(axis=1)
  return out


def gains(
  token_nats: evaluate.NatsFn,
  row: pipeline.Row,
  chunk_length: int,
  batch_size: int = 8,
) -> Float[np.ndarray, 'C N']:
  """Worth of each neighbor, measured by leaving it out.

  Args:
    token_nats: row -> [B, L] nats of each target, 0 where none is scored.
    row: one sequence, [1, ...], with neighbors.
    chunk_length: M.
    batch_size: sequences that `token_nats` gets at a time.

  Returns:
    [C, N] nats by which the targets that a chunk's neighbors are read for
    become less likely where one of them is hidden and all others stay. 0 for
    neighbors that are not there, or that nothing reads.
  """
  mask = np.asarray(row['neighbor_mask'])
  out = np.zeros(mask.shape[1:3], np.float32)
  places = np.argwhere(mask[0].any(axis=-1)).tolist()
  if not len(places):
    return out
  whole = np.asarray(token_nats(row))[0]
  rows = {k: np.repeat(v, batch_size, axis=0) for k, v in row.items()}
  for start in range(0, len(places), batch_size):
    part = places[start : start + batch_size]
    rows['neighbor_mask'] = np.repeat(mask, batch_size, axis=0)
    for i, (c, n) in enumerate(part):
      rows['neighbor_mask'][i, c, n] = False
    for (c, n), nats in zip(part, np.asarray(token_nats(rows)), strict=False):
      span = readers(c, chunk_length, len(whole))
      out[c, n] = nats[span].sum() - whole[span].sum()
  return out
