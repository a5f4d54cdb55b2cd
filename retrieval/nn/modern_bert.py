# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""ModernBERT: encoder and classifier (Warner et al. 2024, section 2.1).

Positions are angles of queries and keys (Su et al. 2021), sublayers normalize what
they read, and the feed-forward is gated. Some layers attend to all tokens, the others
to those nearby. There are no segments.

Dimension key: B batch, L length, D model, H heads, K head width, W tokens on each
side that a local layer sees.
"""

import dataclasses
from typing import Annotated, Literal

from flax import linen as nn
import jax
from jax import numpy as jnp
from jaxtyping import Array, Float, Int
import numpy as np

from retrieval import settings
from retrieval.kernels import backend, products
from retrieval.nn import bert, partitioning

GLOBAL, LOCAL = 'full_attention', 'sliding_attention'  # as checkpoints say

_QUERIES = 512  # that attend at once, where logits are held

Heads = Float[Array, 'b h l k']
Theta = Annotated[float, settings.Range(1)]


@dataclasses.dataclass(frozen=True)
class ModernBertConfig(bert.BertConfig):
  """Sizes and settings of one ModernBERT; the defaults are ModernBERT base.

  Fields of BERT that it does not have, such as dropout, are ignored.
  """

  vocab_size: settings.Size = 50368
  d_ff: bert.Width = 1152  # width of the feed-forward and of its gate
  num_layers: bert.Layers = 22
  max_length: bert.Length = 8192
  layer_norm_eps: bert.Epsilon = 1e-5
  pooler: bool = False  # whether the first layer of a classifier follows
  # kind of each layer; (): each n-th one is global, the first, too
  layer_types: tuple[Literal['full_attention', 'sliding_attention'], ...] = ()
  global_attn_every_n_layers: settings.Size = 3
  local_attention: settings.Size = 128  # 2 W
  global_rope_theta: Theta = 160_000.0  # base of the angles in global layers
  local_rope_theta: Theta = 10_000.0  # and in local layers
  classifier_pooling: Literal['cls', 'mean'] = 'cls'

  def __post_init__(self):
    super().__post_init__()
    if len(self.layer_types) not in (0, self.num_layers):
      raise ValueError(
        f'layer_types has {len(self.layer_types)} items; expected one for each of '
        f'{self.num_layers} layers.'
      )
    if self.d_model // self.num_heads % 2:
      raise ValueError(
        f'Heads of {self.d_model // self.num_heads} dimensions; expected pairs.'
      )

  def is_local(self, layer: int) -> bool:
    """Whether a layer attends to nearby tokens alone."""
    if self.layer_types:
      return self.layer_types[layer] == LOCAL
    return layer % self.global_attn_every_n_layers > 0


def _norm(config: ModernBertConfig, name: str) -> bert.LayerNorm:
  return bert.LayerNorm(config, use_bias=False, name=name)


def _dense(
  config: ModernBertConfig, features: int, axes: tuple[str, str], name: str
) -> nn.Dense:
  return bert.dense(config, features, axes, name, use_bias=False)


def rotations(
  length: int, width: int, theta: float
) -> tuple[Float[np.ndarray, 'l w'], Float[np.ndarray, 'l w']]:
  """Return cosines and sines of each position's angles, w half of `width`.

  The angles are rounded to float32, as in the model's training.
  """
  exponents = np.arange(0, width, 2, dtype=np.float32) / np.float32(width)
  frequencies = np.float32(1) / np.float32(theta) ** exponents
  angles = np.arange(length, dtype=np.float32)[:, None] * frequencies
  wide = angles.astype(np.float64)
  return np.cos(wide).astype(np.float32), np.sin(wide).astype(np.float32)


def _rotate(x, cosines, sines):
  """Turn the pairs (a, a + K / 2) of x, [B, H, L, K], by their position."""
  first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
  turned = first * cosines - second * sines, second * cosines + first * sines
  return jnp.concatenate(turned, axis=-1).astype(x.dtype)


def attend(
  query: Heads, key: Heads, value: Heads, mask: bert.Mask, window: int | None
) -> Heads:
  """Attend to positions that `mask` allows, at most `window` away; None is all.

  Queries are already scaled. Many go block by block, so that memory does not grow with
  the square of l.
  """
  length, mask = query.shape[2], mask[:, None, None]
  if window is not None and window >= length - 1:
    window = None
  is_fused = window is None and not backend.is_cpu()  # holds no logits
  if is_fused or length <= _QUERIES:
    at = np.arange(length)
    near = True if window is None else np.abs(at - at[:, None]) <= window
    return products.attend(query, key, value, None, mask & near)
  after = -length % _QUERIES
  query = jnp.pad(query, ((0, 0), (0, 0), (0, after), (0, 0)))
  size, near = length, True  # keys of a block
  if window is not None:  # the keys begin `window` before the queries
    size = _QUERIES + 2 * window
    near = np.arange(size) - window - np.arange(_QUERIES)[:, None]
    near = np.abs(near) <= window
    sides = window, window + after
    mask = jnp.pad(mask, ((0, 0), (0, 0), (0, 0), sides))
    key, value = (
      jnp.pad(x, ((0, 0), (0, 0), sides, (0, 0))) for x in (key, value)
    )

  def block(start):
    part = jax.lax.dynamic_slice_in_dim
    first = 0 if window is None else start
    q = part(query, start, _QUERIES, axis=2)
    k, v = (part(x, first, size, axis=2) for x in (key, value))
    seen = part(mask, first, size, axis=3) & near
    return products.attend(q, k, v, None, seen)

  blocks = jax.lax.map(block, jnp.arange(0, length, _QUERIES))
  return jnp.concatenate([*blocks], axis=2)[:, :, :length]


class Attention(nn.Module):
  """Bidirectional attention of one layer."""

  config: ModernBertConfig
  is_local: bool

  @nn.compact
  def __call__(self, x: bert.Hidden, mask: bert.Mask) -> bert.Hidden:
    """Attend to the positions that `mask` allows."""
    config, (rows, length, d) = self.config, x.shape
    heads = config.num_heads
    y = _dense(config, 3 * d, ('embed', 'heads'), 'qkv')(x)
    y = y.reshape(rows, length, 3, heads, d // heads)
    query, key, value = y.transpose(2, 0, 3, 1, 4)
    theta, window = config.global_rope_theta, None
    if self.is_local:
      theta, window = config.local_rope_theta, config.local_attention // 2
    angles = rotations(length, d // heads, theta)
    query = _rotate(query * (d // heads) ** -0.5, *angles)
    key = _rotate(key, *angles)
    y = attend(query, key, value, mask, window)
    y = y.transpose(0, 2, 1, 3).reshape(rows, length, d)
    return _dense(config, d, ('heads', 'embed'), 'output')(y)


class Layer(nn.Module):
  """Attention and gated feed-forward, each added to what it read."""

  config: ModernBertConfig
  index: int

  @nn.compact
  def __call__(self, x: bert.Hidden, mask: bert.Mask) -> bert.Hidden:
    """Apply the layer."""
    config = self.config
    # The embeddings, which the first layer reads, are already normalized.
    y = _norm(config, 'attention_norm')(x) if self.index else x
    attention = Attention(config, config.is_local(self.index), name='attention')
    x = x + attention(y, mask)
    y = _norm(config, 'feed_forward_norm')(x)
    y = _dense(config, 2 * config.d_ff, ('embed', 'mlp'), 'intermediate')(y)
    y = partitioning.constrain(y, 'batch', 'length', 'mlp')
    y, gate = jnp.split(y, 2, axis=-1)
    y = bert.ACTIVATIONS[config.activation](y) * gate
    return x + _dense(config, config.d_model, ('mlp', 'embed'), 'output')(y)


class ModernBert(nn.Module):
  """Encoder, called as `bert.Bert` is."""

  config: ModernBertConfig

  @nn.compact
  def __call__(
    self,
    ids: bert.Ids,
    mask: bert.Mask,
    type_ids: bert.Ids | None = None,
    positions: Int[Array, 'b m'] | None = None,
    *,
    train: bool = False,
  ) -> bert.BertOutput:
    """Encode a batch as `bert.Bert` does, without segments and dropout."""
    del type_ids, train
    config = self.config
    if ids.shape[1] > config.max_length:
      raise ValueError(
        f'{ids.shape[1]} tokens exceed max_length {config.max_length}.'
      )
    x = bert.embedding(config, config.vocab_size, 'vocab', 'word')(ids)
    x = _norm(config, 'embedding_norm')(x)
    for i in range(config.num_layers):
      x = partitioning.constrain(x, 'batch', 'length', 'embed')
      x = Layer(config, i, name=f'layer_{i}')(x, mask)
    x, row = _norm(config, 'final_norm')(x), None
    if config.pooler:
      is_mean = config.classifier_pooling == 'mean'
      row = bert.mean_pool(x, mask).astype(x.dtype) if is_mean else x[:, 0]
      axes = 'embed', 'heads'
      row = _dense(config, config.d_model, axes, 'pooler_dense')(row)
      row = _norm(config, 'pooler_norm')(bert.ACTIVATIONS['gelu'](row))
    if positions is not None:
      x = jnp.take_along_axis(x, positions[..., None], axis=1)
    return bert.BertOutput(x, row)
