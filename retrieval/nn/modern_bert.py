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

_QUERIES = 512  # that attend at once, where logits are held

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
  pooler: bool = False  # whether the first layer of a classifier follows
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
  classifier_bias: bool = False

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


def attend(
  query: Float[Array, 'b h q k'],
  key: Float[Array, 'b h l k'],
  value: Float[Array, 'b h l k'],
  mask: Bool[Array, 'b l'],
  window: int | None,
  positions: Int[Array, 'b q'] | None = None,
) -> Float[Array, 'b h q k']:
  """Attend to positions that `mask` allows, at most `window` away; None is all.

  Many queries go block by block, so that memory does not grow with the square of l.

  Args:
    query: already scaled, of all positions or of `positions`.
  """
  count, length = query.shape[2], key.shape[2]
  if positions is None and count > _QUERIES:
    if window is not None or backend.is_cpu():  # other kernels hold no logits
      return _attend_in_blocks(query, key, value, mask, window)
  seen = mask[:, None]
  if window is not None:
    at = jnp.arange(length)[None] if positions is None else positions
    distance = jnp.abs(jnp.arange(length) - at[..., None])
    seen = seen & (distance <= window)
  return products.attend(query, key, value, None, seen[:, None])


def _attend_in_blocks(query, key, value, mask, window):
  """As `attend`, from all positions."""
  length = query.shape[2]
  size, after = length, -length % _QUERIES

  def pad(x, before, after):
    return jnp.pad(x, ((0, 0), (0, 0), (before, after), (0, 0)))

  query, keys = pad(query, 0, after), (key, value, mask[:, None, :, None])
  if window is not None:
    size = _QUERIES + 2 * window
    keys = [pad(x, window, window + after) for x in keys]

  def block(start):
    q = jax.lax.dynamic_slice_in_dim(query, start, _QUERIES, axis=2)
    first = 0 if window is None else start
    k, v, m = (
      jax.lax.dynamic_slice_in_dim(x, first, size, axis=2) for x in keys
    )
    seen = jnp.swapaxes(m, 2, 3)
    if window is not None:
      distance = np.arange(size) - window - np.arange(_QUERIES)[:, None]
      seen = seen & (np.abs(distance) <= window)
    return products.attend(q, k, v, None, seen)

  blocks = jax.lax.map(block, jnp.arange(0, length, _QUERIES))
  return jnp.concatenate([*blocks], axis=2)[:, :, :length]


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
    is_global = not is_local or window >= length - 1
    window = None if is_global else window
    y = attend(query, key, value, mask, window, positions)
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


class Pooler(nn.Module):
  """First layer of a classifier."""

  config: ModernBertConfig

  @nn.compact
  def __call__(self, x: Float[Array, 'b d']) -> Float[Array, 'b d']:
    """Map the vectors of rows: [CLS], or the means of all tokens."""
    config = self.config
    axes, bias = ('embed', 'heads'), config.classifier_bias
    x = bert.dense(config, config.d_model, axes, 'dense', bias)(x)
    return _norm(config, 'norm')(ACTIVATIONS[config.classifier_activation](x))


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
      positions: positions of the output; None is every position. A pooler over all
        tokens needs all.

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
    x = _norm(config, 'final_norm')(x)
    if not config.pooler:
      return bert.BertOutput(x, None)
    is_mean = config.classifier_pooling == 'mean'
    row = bert.mean_pool(x, mask).astype(x.dtype) if is_mean else x[:, 0]
    return bert.BertOutput(x, Pooler(config, name='pooler')(row))
