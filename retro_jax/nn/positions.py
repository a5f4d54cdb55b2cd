# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Positions of tokens, for attention: by distance, and those of public decoders.

RETRO's attentions go by the distance of query and key (Dai et al. 2019, appendix B).
The distances of Q queries and S keys are few, so that term is one product of the
queries with those, moved into place. A public decoder with added retrieval keeps
what it was trained with: angles of queries and keys (Su et al. 2021, in the layout of
Llama's checkpoints) or a learned table.

Dimension key: B batch, L tokens, N rows, Q queries, S keys, H heads, K head width, D
model width, T distinct distances.
"""

import dataclasses
import functools
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
import numpy as np
import numpy.typing as npt

from retrieval import settings
from retrieval.kernels import backend, products

_ROWS = 64


def in_rows(
  length: int, segment_ids: Int[Array, 'B L'] | None
) -> Int[Array, '_ L']:
  """Positions from the first token of each document, or run of padding.

  Without `segment_ids` each row is one document; the result is [1, L].
  """
  index = jnp.arange(length, dtype=jnp.int32)
  if segment_ids is None:
    return index[None]
  before = jnp.pad(segment_ids, ((0, 0), (1, 0)), constant_values=-1)[:, :-1]
  starts = jnp.where(segment_ids != before, index, 0)
  return index - jax.lax.cummax(starts, axis=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RotaryScaling:
  """How a decoder's rotary positions were stretched to longer texts.

  linear: all frequencies are divided by `factor` (Chen et al. 2023). llama3: those of
  long waves are, with a ramp up to those of short waves (Llama 3.1). yarn: as that,
  with another ramp, and queries and keys grow (Peng et al. 2023).
  """

  kind: Literal['none', 'linear', 'llama3', 'yarn'] = 'none'
  factor: settings.Positive = 1.0
  # tokens of the texts that it learned from first
  length: settings.SizeOrZero = 0
  low: settings.Positive = 1.0  # waves in that length: llama3's ramp begins and
  high: settings.Positive = 4.0  # ends there
  fast: settings.Positive = 32.0  # yarn's ramp ends and
  slow: settings.Positive = 1.0  # begins there
  whole: bool = True  # whether yarn's ramp begins and ends at whole pairs
  growth: settings.Positive = 1.0  # of queries and keys, by yarn

  def __post_init__(self):
    settings.check(self)
    if self.kind in ('llama3', 'yarn') and not self.length:
      raise ValueError(f'{self.kind} needs the length of the first texts.')
    if self.kind == 'llama3' and self.low >= self.high:
      raise ValueError(f'llama3: low {self.low}; expected below {self.high}.')

  def frequencies(self, width: int, base: float) -> np.ndarray:
    """Angles of the pairs at position 1: [width / 2] float64."""
    half = width // 2
    plain = base ** (-np.arange(half, dtype=np.float64) / half)
    if self.kind == 'none':
      return plain
    if self.kind == 'linear':
      return plain / self.factor
    if self.kind == 'llama3':
      waves = self.length * plain / (2 * np.pi)
      share = (waves - self.low) / (self.high - self.low)
    else:
      ends = [
        half * np.log(self.length / (x * 2 * np.pi)) / np.log(base)
        for x in (self.fast, self.slow)
      ]
      if self.whole:
        ends = np.floor(ends[0]), np.ceil(ends[1])
      first, last = max(ends[0], 0), min(ends[1], width - 1)
      last += 0.001 * (first == last)
      share = 1 - (np.arange(half) - first) / (last - first)
    share = np.clip(share, 0, 1)
    return plain * share + plain / self.factor * (1 - share)


def rotate(
  x: Float[Array, 'H B L K'],
  positions: Int[Array, '#B L'],
  base: float,
  scaling: RotaryScaling = RotaryScaling(),  # noqa: B008
) -> Float[Array, 'H B L K']:
  """Turn each pair (a, a + K / 2) of a vector by its position.

  The product of a turned query and a turned key depends on their distance alone. The
  frequencies are base ** (-2 a / K), scaled.
  """
  wide = jnp.promote_types(x.dtype, jnp.float32)
  frequencies = scaling.frequencies(x.shape[-1], base)
  angles = positions[..., None].astype(wide) * jnp.asarray(frequencies, wide)
  sines, cosines = (f(angles) * scaling.growth for f in (jnp.sin, jnp.cos))
  first, second = jnp.split(x.astype(wide), 2, axis=-1)
  turned = (first * cosines - second * sines, second * cosines + first * sines)
  return jnp.concatenate(turned, axis=-1).astype(x.dtype)


@functools.lru_cache(maxsize=64)
def vectors(first: int, last: int, width: int, base: float) -> np.ndarray:
  """R(d) for d = first, first - 1, ..., last: [first - last + 1, width] float64.

  Sines, then cosines, of the frequencies base ** (-2 a / width); an odd width drops
  the last cosine.
  """
  distances = np.arange(first, last - 1, -1, dtype=np.float64)
  frequencies = base ** (-np.arange(0, width, 2, dtype=np.float64) / width)
  angles = distances[:, None] * frequencies
  vectors = np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)
  return vectors[:, :width]


def vectors_of(
  first: int, last: int, width: int, base: float, dtype: npt.DTypeLike
) -> Float[Array, 'T D']:
  """Return `vectors` for a program.

  On accelerators they are computed there from a few rows, by sin(a - b) and cos(a - b):
  as constants they would make long programs longer.
  """
  if backend.is_cpu():
    return jnp.asarray(vectors(first, last, width, base), dtype)
  wide = jnp.promote_types(dtype, jnp.float32)
  count = first - last + 1
  frequencies = base ** (-np.arange(0, width, 2, dtype=np.float64) / width)
  starts = first - _ROWS * np.arange(-(-count // _ROWS))
  far = starts[:, None, None] * frequencies
  near = np.arange(_ROWS)[:, None] * frequencies
  sin_far, cos_far, sin_near, cos_near = (
    jnp.asarray(f(x), wide) for x in (far, near) for f in (np.sin, np.cos)
  )
  sines = sin_far * cos_near - cos_far * sin_near
  cosines = cos_far * cos_near + sin_far * sin_near
  whole = jnp.concatenate([sines, cosines], axis=-1)
  return whole.reshape(-1, whole.shape[-1])[:count, :width].astype(dtype)


def shift_to_keys(
  by_distance: Float[Array, '*N Q T'], num_keys: int
) -> Float[Array, '*N Q S']:
  """Move logits by distance to the keys at those distances.

  Column c of the input stands for distance (first - c), first being that of the
  last query and key 0; so out[i, j] = in[i, Q - 1 - i + j]. In row-major order
  this is a slice of rows one shorter, and no gather.

  Args:
    by_distance: T is at least S + 1; keys at distances beyond the last column get
      the logits of others.
    num_keys: S.
  """
  *batch, num_queries, num_distances = by_distance.shape
  flat = by_distance.reshape(*batch, num_queries * num_distances)
  start = num_queries - 1
  flat = flat[..., start : start + num_queries * (num_distances - 1)]
  rows = flat.reshape(*batch, num_queries, num_distances - 1)
  return rows[..., :num_keys]


def logits(
  queries: Float[Array, 'H N Qs K'],
  relative_keys: Float[Array, 'H T K'],
  num_queries: int,
  num_keys: int,
  causal: bool = False,
) -> Float[Array, 'H N Qs S']:
  """(q + w) . R(d) W_R of each query and key.

  Args:
    queries: [H, N, copies * Q, K].
    relative_keys: [H, Q + S, K], by falling distance.
    causal: whether the logits of keys after their query do not matter.

  Returns:
    [H, N, copies * Q, S], on accelerators in float32.
  """
  if backend.is_cpu():
    return _logits_on_cpu(queries, relative_keys, num_queries, num_keys)
  heads, rows, total, head_dim = queries.shape
  if causal:
    relative_keys = relative_keys[:, : num_keys + 1]
  flat = queries.reshape(heads, -1, head_dim)
  logits = products.wide_scores(flat, relative_keys)
  logits = logits.reshape(heads, rows, -1, num_queries, relative_keys.shape[1])
  return shift_to_keys(logits, num_keys).reshape(heads, rows, total, num_keys)


def _logits_on_cpu(queries, relative_keys, num_queries, num_keys):
  """As `logits`, of any keys.

  Queries go in short blocks, each of which sees few distances more than keys:
  so little more is computed than the result.
  """
  heads, rows, total, head_dim = queries.shape
  block = max(b for b in range(1, 17) if num_queries % b == 0)
  num_blocks = num_queries // block
  starts = range(num_queries - block, -1, -block)
  by_block = jnp.stack(
    [relative_keys[:, i : i + block + num_keys] for i in starts], axis=1
  )
  q = queries.reshape(heads, -1, num_blocks, block, head_dim)
  q = q.transpose(0, 2, 1, 3, 4).reshape(heads, num_blocks, -1, head_dim)
  logits = products.scores(q, by_block)
  logits = logits.reshape(heads, num_blocks, -1, block, block + num_keys)
  logits = _shift_on_cpu(logits, num_keys).transpose(0, 2, 1, 3, 4)
  return logits.reshape(heads, rows, total, num_keys)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _shift_on_cpu(by_distance, num_keys):
  """As `shift_to_keys`, of Q + S distances."""
  return shift_to_keys(by_distance, num_keys)


def _shift_backward(num_keys, _, g):
  """Row by row: the transposed slice would pad every element by division."""
  num_queries = g.shape[-2]
  shape = (*g.shape[:-1], num_queries + num_keys)
  by_distance = jnp.zeros(shape, g.dtype)
  for i in range(num_queries):
    start = num_queries - 1 - i
    by_distance = by_distance.at[..., i, start : start + num_keys].set(
      g[..., i, :]
    )
  return (by_distance,)


_shift_on_cpu.defvjp(
  lambda x, num_keys: (shift_to_keys(x, num_keys), None), _shift_backward
)
