# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A baseline that looks up its last two and three tokens in tables (not the paper's).

The memory of Engram (Cheng et al. 2026, arXiv 2601.07372, sections 2.2 and 2.3) before
some of the decoder's layers. A token's bigram and trigram each name a row in several
tables by hashes of their own. The rows side by side are e; the hidden state h decides
what they count:

  k = W_k e,  v = W_v e
  h + sigmoid(<norm(h), norm(k)> / sqrt(D)) v

The function z of head j and order n is multiply-shift hashing of a vector (Thorup 2015,
section 3.4), uniform without a division where rows are a power of two:

  z(x_t, ..., x_{t-n+1}) = high bits of (b + sum_i a_i x_{t-i} mod 2^32)

Before a document's first token all tokens are the same stranger, so that documents
of a row do not meet in an n-gram. Layers have tables of their own with the same hashes.

Left out of Engram: the causal convolution over time, which would need a cache of its
own; the map of tokens to lower case, which belongs to a tokenizer; branches of
hyper-connections; another learning rate and no decay for tables. Adam updates whole
tables: on a CPU 131,072 rows of 16 take a fiftieth of a step of the quickstart, two
million would take half a step.

Dimension key: B batch, L tokens, D model width, T tables, R rows of a table, W width
of a row, E = T W.
"""

from flax import linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
import numpy as np

from retrieval.nn import partitioning
from retro_jax.nn import inputs, layers, primitives, retro, retro_step
from retro_jax.nn.config import Ngrams, RetroConfig

ORDERS = (2, 3)  # tokens of an n-gram
_BITS = 32  # of a hash


def num_tables(ngrams: Ngrams) -> int:
  """Tables of a layer: one for each order and head."""
  return len(ORDERS) * ngrams.heads


def multipliers(ngrams: Ngrams) -> tuple[np.ndarray, np.ndarray]:
  """Return a [T, longest order] and b [T] of the hashes, uint32.

  They belong to trained weights, so they come from a formula (the finalizer of
  MurmurHash3) and not from a generator of random numbers. Tokens beyond an order
  are multiplied by 0.
  """
  tables, most = num_tables(ngrams), max(ORDERS)
  x = np.arange(1, tables * (most + 1) + 1, dtype=np.uint32)
  x = x * np.uint32(0x9E3779B9)
  for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
    x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
  a, b = np.split(x.reshape(tables, most + 1), [most], axis=1)
  orders = np.repeat(ORDERS, ngrams.heads)[:, None]
  return a * (np.arange(most) < orders).astype(np.uint32), b[:, 0]


def look_up_rows(
  ngrams: Ngrams, windows: Int[Array, 'B L N']
) -> Int[Array, 'B L T']:
  """Return the row of each table, counted through all tables of a layer.

  Args:
    windows: last tokens, the newest first, plus one; 0 before a document.
  """
  a, b = multipliers(ngrams)
  mixed = windows.astype(jnp.uint32)[..., None, :] * jnp.asarray(a)
  mixed = mixed.sum(axis=-1, dtype=jnp.uint32) + jnp.asarray(b)
  bits = ngrams.rows.bit_length() - 1
  rows = (mixed >> jnp.uint32(_BITS - bits)).astype(jnp.int32)
  return rows + ngrams.rows * jnp.arange(num_tables(ngrams), dtype=jnp.int32)


def windows_of(
  tokens: Int[Array, 'B L'], segment_ids: Int[Array, 'B L'] | None
) -> Int[Array, 'B L N']:
  """Return the last tokens of each place, as `look_up_rows` reads them."""
  if segment_ids is None:
    segment_ids = jnp.ones_like(tokens)

  def back(x, i):
    return jnp.pad(x, ((0, 0), (i, 0)))[:, : x.shape[1]]

  shifted = [
    jnp.where(back(segment_ids, i) == segment_ids, back(tokens + 1, i), 0)
    for i in range(max(ORDERS))
  ]
  return jnp.stack(shifted, axis=-1)


class Recall(nn.Module):
  """The gated memory of one layer, whose table is the caller's."""

  config: RetroConfig

  @nn.compact
  def __call__(
    self,
    x: Float[Array, 'B L D'],
    table: Float[Array, 'R W'],
    rows: Int[Array, 'B L T'],
  ) -> Float[Array, 'B L D']:
    """Add what the rows of the table hold to `x`."""
    c = self.config
    wide = primitives.accumulation_dtype(c.dtype)
    # Whole rows on every device, as `layers.embed` reads them.
    table = partitioning.constrain(table, 'ngrams', None)
    e = jnp.take(table, rows, axis=0, mode='clip').astype(c.dtype)
    e = e.reshape(*rows.shape[:2], -1)
    width, axes = x.shape[-1], (None, 'embed')
    (k,) = primitives.project(self, ['k'], e, width, axes, c.init_scale)
    out_scale = c.output_scale(in_encoder=False)
    (v,) = primitives.project(self, ['v'], e, width, axes, out_scale)
    queries, keys = layers.norm(c, 'norm')(x), layers.norm(c, 'key_norm')(k)
    match = (queries.astype(wide) * keys.astype(wide)).sum(-1, keepdims=True)
    gate = jax.nn.sigmoid(match / width**0.5)
    self.sow('intermediates', 'gate', gate[..., 0])
    return x + gate.astype(c.dtype) * v


class _Recalls:
  """Adds the memory of n-grams before layers of a Retro."""

  def _recall(self, p, x, found):
    c = self.config
    if p not in c.ngrams.layers:
      return x
    init = nn.initializers.normal(c.init_scale)
    table = self.param(
      f'layer_{p}_ngrams',
      partitioning.partitioned(init, 'ngrams', 'embed'),
      (num_tables(c.ngrams) * c.ngrams.rows, c.ngrams.width),
      c.param_dtype,
    )
    return Recall(c, name=f'layer_{p}_recall')(x, table, found)


class NgramRetro(_Recalls, retro.Retro):
  """The baseline with a memory of n-grams; arguments and results are Retro's."""

  def _look_up(self, tokens, segment_ids, last):
    if inputs.is_kept(self, last):
      self.put_variable('cache', 'tokens', tokens)
    return look_up_rows(self.config.ngrams, windows_of(tokens, segment_ids))


class NgramStep(_Recalls, retro_step.RetroStep):
  """NgramRetro for the next token of each row, as RetroStep for Retro.

  The cache holds keys and values of self-attention, the tokens, and where documents
  begin.
  """

  def _look_up(self, tokens, position):
    cache = self.variables['cache']
    first, place = cache['first'][:, None], position[:, None]
    text = cache['tokens'].at[jnp.arange(len(tokens)), position].set(tokens)
    self.put_variable('cache', 'tokens', text)
    at = place - jnp.arange(max(ORDERS))
    window = jnp.take_along_axis(text, jnp.maximum(at, 0), axis=1) + 1
    window = jnp.where(at >= first, window, 0)
    return look_up_rows(self.config.ngrams, window[:, None])
