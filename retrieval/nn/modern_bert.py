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
from jaxtyping import Array, Bool, Float, Int
import numpy as np

from retrieval import settings
from retrieval.kernels import backend, products
from retrieval.nn import bert, partitioning

GLOBAL, LOCAL = 'full_attention', 'sliding_attention'  # as checkpoints say
ACTIVATIONS = {**bert.ACTIVATIONS, 'silu': jax.nn.silu}

_BLOCK = 32  # tokens of a block of local attention, at the least
_QUERIES = 1024  # queries that attend to all tokens at once on a CPU

Activation = Literal['gelu', 'gelu_tanh', 'relu', 'silu']  # keys of ACTIVATIONS
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
  activation: Activation = 'gelu'
  layer_norm_eps: bert.Epsilon = 1e-5
  pooler: bool = False
  # kind of each layer
  layer_types: tuple[Literal['full_attention', 'sliding_attention'], ...] = (
    *(GLOBAL, LOCAL, LOCAL) * 7,
    GLOBAL,
  )
  local_attention: settings.Size = 128  # 2 W
  global_rope_theta: Theta = 160_000.0  # base of the angles in global layers
  local_rope_theta: Theta = 10_000.0  # and in local layers
  norm_bias: bool = False  # whether norms have a bias
  attention_bias: bool = False  # and the projections of attention
  mlp_bias: bool = False  # and the feed-forward
  classifier_pooling: Literal['cls', 'mean'] = 'cls'
  classifier_activation: Activation = 'gelu'
  classifier_bias: bool = False  # whether the classifier's first layer has one

  def __post_init__(self):
    super().__post_init__()
    if len(self.layer_types) != self.num_layers:
      raise ValueError(
        f'layer_types has {len(self.layer_types)} items; expected one for each of '
        f'{self.num_layers} layers.'
      )
    if self.d_model // self.num_heads % 2:
      raise ValueError(
        f'Heads of {self.d_model // self.num_heads} dimensions; expected pairs.'
      )


def _norm(config: ModernBertConfig, name: str) -> bert.LayerNorm:
  return bert.LayerNorm(config, config.norm_bias, name=name)


def rotations(
  length: int, width: int, theta: float
) -> tuple[Float[np.ndarray, 'l w'], Float[np.ndarray, 'l w']]:
  """Return cosines and sines of each position's angles, w half of `width`.

  The angles are rounded to float32, as those that the model was trained with.
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


def attend_to_all(
  query: Float[Array, 'b h q k'],
  key: Float[Array, 'b h l k'],
  value: Float[Array, 'b h l k'],
  mask: Bool[Array, 'b l'],
) -> Float[Array, 'b h q k']:
  """Attend to the positions that `mask` allows; memory grows with l alone."""
  mask, count = mask[:, None, None], query.shape[2]
  if not backend.is_cpu() or count <= _QUERIES:
    return products.attend(query, key, value, None, mask)
  blocks = _cut(query, _QUERIES).transpose(1, 0, 2, 3, 4)
  y = jax.lax.map(lambda q: products.attend(q, key, value, None, mask), blocks)
  return _joined(y.transpose(1, 0, 2, 3, 4), count)


def attend_nearby(
  query: Float[Array, 'b h l k'],
  key: Float[Array, 'b h l k'],
  value: Float[Array, 'b h l k'],
  mask: Bool[Array, 'b l'],
  window: int,
) -> Float[Array, 'b h l k']:
  """Attend to positions at most `window` away that `mask` allows.

  Blocks of queries see their block and its neighbors, so time and memory grow with l
  alone.
  """
  length = query.shape[2]
  size = max(window, _BLOCK)
  query, key, value = (_cut(x, size) for x in (query, key, value))
  blocks = query.shape[1]

  def flat(x):
    return x.reshape(-1, *x.shape[2:])

  def around(x):
    """Join each block, [B, blocks, ..., size, _], to the ones beside it."""
    x = jnp.pad(x, ((0, 0), (1, 1), *((0, 0),) * (x.ndim - 2)))
    sides = x[:, :-2], x[:, 1:-1], x[:, 2:]
    return flat(jnp.concatenate(sides, axis=-2))

  distance = np.arange(3 * size) - size - np.arange(size)[:, None]
  near = np.abs(distance) <= window
  keys = around(_cut(mask[:, None, :, None], size))  # [B blocks, 1, 3 size, 1]
  allowed = near & jnp.swapaxes(keys, -1, -2)
  y = products.attend(flat(query), around(key), around(value), None, allowed)
  return _joined(y.reshape(-1, blocks, *y.shape[1:]), length)


def _cut(x, size):
  """Cut [B, H, L, K] into [B, blocks, H, size, K]; zeros fill the last block."""
  x = jnp.pad(x, ((0, 0), (0, 0), (0, -x.shape[2] % size), (0, 0)))
  x = x.reshape(*x.shape[:2], -1, size, x.shape[3])
  return x.transpose(0, 2, 1, 3, 4)


def _joined(x, length):
  """Return the first `length` positions of blocks of `_cut`."""
  x = x.transpose(0, 2, 1, 3, 4)
  return x.reshape(*x.shape[:2], -1, x.shape[4])[:, :, :length]


class Attention(nn.Module):
  """Bidirectional attention of one layer."""

  config: ModernBertConfig
  kind: str

  @nn.compact
  def __call__(
    self,
    x: Float[Array, 'b l d'],
    mask: Bool[Array, 'b l'],
    positions: Int[Array, 'b m'] | None,
  ) -> Float[Array, 'b _ d']:
    """Attend from all positions, or from `positions`."""
    config, (rows, length, d) = self.config, x.shape
    heads, bias = config.num_heads, config.attention_bias
    y = bert.dense(config, 3 * d, ('embed', 'heads'), 'qkv', bias)(x)
    y = y.reshape(rows, length, 3, heads, d // heads)
    query, key, value = y.transpose(2, 0, 3, 1, 4)
    is_local = self.kind == LOCAL
    theta = config.local_rope_theta if is_local else config.global_rope_theta
    angles = rotations(length, d // heads, theta)
    query = _rotate(query * (d // heads) ** -0.5, *angles)
    key = _rotate(key, *angles)
    if positions is not None:
      query = jnp.take_along_axis(query, positions[:, None, :, None], axis=2)
    window = config.local_attention // 2
    if not is_local or length <= window + 1:
      y = attend_to_all(query, key, value, mask)
    elif positions is None:
      y = attend_nearby(query, key, value, mask, window)
    else:
      distance = jnp.arange(length) - positions[..., None]
      near = mask[:, None] & (jnp.abs(distance) <= window)
      y = products.attend(query, key, value, None, near[:, None])
    y = y.transpose(0, 2, 1, 3).reshape(rows, -1, d)
    return bert.dense(config, d, ('heads', 'embed'), 'output', bias)(y)


class Layer(nn.Module):
  """Attention and gated feed-forward, each added to what it read."""

  config: ModernBertConfig
  index: int

  @nn.compact
  def __call__(
    self,
    x: Float[Array, 'b l d'],
    mask: Bool[Array, 'b l'],
    positions: Int[Array, 'b m'] | None = None,
  ) -> Float[Array, 'b _ d']:
    """Apply the layer at all positions, or at `positions`."""
    config = self.config
    # The embeddings, which the first layer reads, are already normalized.
    y = _norm(config, 'attention_norm')(x) if self.index else x
    attention = Attention(
      config, config.layer_types[self.index], name='attention'
    )
    y = attention(y, mask, positions)
    if positions is not None:
      x = jnp.take_along_axis(x, positions[..., None], axis=1)
    x = x + y
    y, bias = _norm(config, 'feed_forward_norm')(x), config.mlp_bias
    axes = 'embed', 'mlp'
    y = bert.dense(config, 2 * config.d_ff, axes, 'intermediate', bias)(y)
    y = partitioning.constrain(y, 'batch', 'length', 'mlp')
    y, gate = jnp.split(y, 2, axis=-1)
    y = ACTIVATIONS[config.activation](y) * gate
    return x + bert.dense(config, x.shape[-1], axes[::-1], 'output', bias)(y)


class ModernBert(nn.Module):
  """Encoder, called as `bert.Bert` is."""

  config: ModernBertConfig

  @nn.compact
  def __call__(
    self,
    ids: Int[Array, 'b l'],
    mask: Bool[Array, 'b l'],
    type_ids: Int[Array, 'b l'] | None = None,
    positions: Int[Array, 'b m'] | None = None,
    *,
    train: bool = False,
  ) -> bert.BertOutput:
    """Encode a batch.

    Args:
      ids: tokens, [CLS] first.
      mask: False at padding.
      type_ids, train: without effect, as there are no segments and no dropout.
      positions: positions of the output; None is every position.

    Raises:
      ValueError: for rows of more than `max_length` tokens.
    """
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
      last = i == config.num_layers - 1
      layer = Layer(config, i, name=f'layer_{i}')
      x = layer(x, mask, positions if last else None)
    if positions is not None and not config.num_layers:
      x = jnp.take_along_axis(x, positions[..., None], axis=1)
    return bert.BertOutput(_norm(config, 'final_norm')(x), None)
