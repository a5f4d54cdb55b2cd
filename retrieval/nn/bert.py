# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""BERT: encoder, pooler and masked-language-model head (Devlin et al. 2018).

Dimension key: B batch, L length, D model, H heads, K head width, F
feed-forward, V vocabulary.
"""

from collections.abc import Callable, Mapping
import dataclasses
from typing import Annotated, Any, Literal

from flax import linen as nn, struct
import jax
from jax import numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from retrieval import settings
from retrieval.kernels import backend, products
from retrieval.nn import dropout, partitioning, sharding


def _gelu(x: jax.Array) -> jax.Array:
  """Exact, by erf, in float32 for bfloat16, too: CPUs are faster at it."""
  wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
  return jax.nn.gelu(wide, approximate=False).astype(x.dtype)


ACTIVATIONS: Mapping[str, Callable[[jax.Array], jax.Array]] = {
  'gelu': _gelu,
  'gelu_tanh': lambda x: jax.nn.gelu(x, approximate=True),
  'relu': jax.nn.relu,
}

Activation = Literal['gelu', 'gelu_tanh', 'relu']  # keys of ACTIVATIONS
Width = Annotated[int, settings.Range(1, 2**16)]
Layers = Annotated[int, settings.Range(0, 1024)]
Length = Annotated[int, settings.Range(1, 2**17)]  # positions with embeddings
Ids = Int[Array, 'b l']
Mask = Bool[Array, 'b l']
Hidden = Float[Array, 'b l d']
Epsilon = Annotated[float, settings.Range(0, 1, above=True)]


@dataclasses.dataclass(frozen=True)
class BertConfig:
  """Sizes and settings of one BERT; the defaults are BERT base, uncased."""

  vocab_size: settings.Size = 30522  # WordPiece entries
  d_model: Width = 768  # hidden size
  d_ff: Width = 3072  # intermediate size
  num_heads: Width = 12  # attention heads, each d_model / num_heads wide
  num_layers: Layers = 12  # transformer layers
  max_length: Length = 512  # position embeddings
  type_vocab_size: Width = 2  # segment (token type) embeddings
  activation: Activation = 'gelu'  # 'gelu' is exact, by erf
  layer_norm_eps: Epsilon = 1e-12  # added to the variance
  # on embeddings and on each sublayer's output
  dropout_rate: settings.Rate = 0.1
  attention_dropout_rate: settings.Rate = 0.1  # on attention probabilities
  # standard deviation of initial weights
  initializer_range: settings.NotNegative = 0.02
  pooler: bool = True  # whether a tanh layer over [CLS] follows
  remat: bool = False  # recompute each layer in the backward pass
  dtype: Any = 'float32'  # compute
  param_dtype: Any = 'float32'  # parameters

  def __post_init__(self):
    settings.check(self)
    if self.d_model % self.num_heads:
      raise ValueError(
        f'd_model {self.d_model} is not a multiple of num_heads '
        f'{self.num_heads}.'
      )


@struct.dataclass
class BertOutput:
  """Output of the encoder."""

  # [batch, length, d_model]. Output of the last layer, at the requested
  # positions only where there are such.
  hidden: jax.Array
  # [batch, d_model]. Tanh layer over the first position; None without a pooler.
  pooled: jax.Array | None


def _normal(config: BertConfig) -> Callable:
  return nn.initializers.truncated_normal(config.initializer_range)


def dense(
  config: BertConfig,
  features: int,
  axes: tuple[str | None, str | None],
  name: str | None = None,
  use_bias: bool = True,
) -> nn.Dense:
  """Return a linear layer; `axes` are the kernel's logical axes."""
  zeros = nn.initializers.zeros
  return nn.Dense(
    features,
    use_bias=use_bias,
    dtype=config.dtype,
    param_dtype=config.param_dtype,
    kernel_init=partitioning.partitioned(_normal(config), *axes),
    bias_init=partitioning.partitioned(zeros, axes[1]),
    dot_general=products.dot_general,
    name=name,
  )


def embedding(
  config: BertConfig, rows: int, axis: str | None, name: str
) -> nn.Embed:
  """Return a table of `rows` vectors; `axis` is their logical axis."""
  return nn.Embed(
    rows,
    config.d_model,
    dtype=config.param_dtype,  # its gradient is a sum in that dtype, too
    param_dtype=config.param_dtype,
    embedding_init=partitioning.partitioned(_normal(config), axis, 'embed'),
    name=name,
  )


class LayerNorm(nn.Module):
  """Layer normalisation with statistics in float32."""

  config: BertConfig
  use_bias: bool = True

  @nn.compact
  def __call__(self, x: Float[Array, '*b d']) -> Float[Array, '*b d']:
    """Normalise the last axis, then scale and shift it."""
    y = nn.LayerNorm(
      epsilon=self.config.layer_norm_eps,
      dtype=jnp.float32,
      param_dtype=self.config.param_dtype,
      use_fast_variance=False,
      use_bias=self.use_bias,
      scale_init=partitioning.partitioned(nn.initializers.ones, 'embed'),
      bias_init=partitioning.partitioned(nn.initializers.zeros, 'embed'),
      name='norm',
    )(x.astype(jnp.float32))
    return y.astype(self.config.dtype)


class Embeddings(nn.Module):
  """Sum of word, position and token type embeddings, normalised."""

  config: BertConfig

  def setup(self):
    """Create the three tables."""
    config = self.config
    self.word = embedding(config, config.vocab_size, 'vocab', 'word')
    self.position = embedding(config, config.max_length, None, 'position')
    self.token_type = embedding(
      config, config.type_vocab_size, None, 'token_type'
    )
    self.norm = LayerNorm(config, name='norm')
    self.dropout = dropout.Dropout(config.dropout_rate)

  def __call__(self, ids: Ids, type_ids: Ids, train: bool) -> Hidden:
    """Embed word pieces at positions 0 to l - 1."""
    x = self.word(ids) + self.position(jnp.arange(ids.shape[1]))
    x = self.norm(x + self.token_type(type_ids))
    return self.dropout(x, train)


class Attention(nn.Module):
  """Bidirectional multi-head attention."""

  config: BertConfig

  @nn.compact
  def __call__(
    self,
    x: Float[Array, 'b q d'],
    context: Hidden,
    mask: Mask,
    train: bool,
    bias: Float[Array, 'h q l'] | None = None,
  ) -> Float[Array, 'b q d']:
    """Attend to the positions of `context` that `mask` allows, with a bias."""
    config = self.config
    head_dim = config.d_model // config.num_heads

    def project(name, x):
      y = dense(config, config.d_model, ('embed', 'heads'), name=name)(x)
      # Heads come before length: a CPU multiplies whole rows fastest.
      y = y.reshape(*x.shape[:2], config.num_heads, head_dim)
      return y.transpose(0, 2, 1, 3)

    query = project('query', x)
    key, value = project('key', context), project('value', context)
    rate, keep = config.attention_dropout_rate, None
    if train and rate:
      shape = (*query.shape[:3], key.shape[2])
      keep = dropout.keep_mask(self.make_rng('dropout'), rate, shape)
      value = value / dropout.kept_share(rate)
    if bias is not None:
      bias = jnp.broadcast_to(bias, (len(x), *bias.shape))
    y = products.attend(
      query * head_dim**-0.5, key, value, bias, mask[:, None, None, :], keep
    )
    y = y.transpose(0, 2, 1, 3).reshape(x.shape)
    return dense(config, config.d_model, ('heads', 'embed'), name='output')(y)


class Layer(nn.Module):
  """Attention and feed-forward sublayers, each normalised after its sum."""

  config: BertConfig

  @nn.compact
  def __call__(
    self,
    x: Hidden,
    mask: Mask,
    train: bool,
    positions: Int[Array, 'b m'] | None = None,
    bias: Float[Array, 'h l l'] | None = None,
  ) -> Float[Array, 'b _ d']:
    """Apply one layer, at all positions or, without a bias, at `positions`."""
    config = self.config
    drop = dropout.Dropout(config.dropout_rate)
    context = x
    if positions is not None:
      x = jnp.take_along_axis(x, positions[..., None], axis=1)
    y = Attention(config, name='attention')(x, context, mask, train, bias)
    y = drop(y, train)
    x = LayerNorm(config, name='attention_norm')(x + y)
    y = dense(config, config.d_ff, ('embed', 'mlp'), name='intermediate')(x)
    y = partitioning.constrain(y, 'batch', 'length', 'mlp')
    y = ACTIVATIONS[config.activation](y)
    y = dense(config, config.d_model, ('mlp', 'embed'), name='output')(y)
    y = drop(y, train)
    return LayerNorm(config, name='output_norm')(x + y)


class Bert(nn.Module):
  """Encoder, with a pooler where the configuration has one."""

  config: BertConfig

  def setup(self):
    """Create the layers under the names that checkpoints map to."""
    config = self.config
    layer = nn.remat(Layer, static_argnums=(3,)) if config.remat else Layer
    self.embeddings = Embeddings(config)
    self.layers = [
      layer(config, name=f'layer_{i}') for i in range(config.num_layers)
    ]
    if config.pooler:
      self.pooler = dense(config, config.d_model, ('embed', 'heads'))

  def attention_bias(self, length: int) -> Float[Array, 'h l l'] | None:
    """Return a bias of all attention logits; None in BERT."""
    del length

  def __call__(
    self,
    ids: Ids,
    mask: Mask,
    type_ids: Ids | None = None,
    positions: Int[Array, 'b m'] | None = None,
    *,
    train: bool = False,
  ) -> BertOutput:
    """Encode a batch.

    Args:
      ids: word pieces, [CLS] first.
      mask: False at padding.
      type_ids: segment of each token; None is all 0.
      positions: positions of the last layer's output; at the others it computes
        keys and values only. None is every position.
      train: whether dropout is on (needs the 'dropout' random stream).
    """
    if ids.shape[1] > self.config.max_length:
      raise ValueError(
        f'{ids.shape[1]} tokens exceed the {self.config.max_length} position '
        'embeddings.'
      )
    type_ids = jnp.zeros_like(ids) if type_ids is None else type_ids
    x = self.embeddings(ids, type_ids, train)
    x = partitioning.constrain(x, 'batch', 'length', 'embed')
    bias = self.attention_bias(ids.shape[1])
    looped = len(self.layers) - 1  # The last may be asked for positions.
    if looped < 1 or backend.is_cpu() or self.is_initializing():
      looped = 0
    if looped:
      x = self._loop(x, mask, train, looped, bias)
    for layer in self.layers[looped:]:
      last = layer is self.layers[-1]
      x = layer(x, mask, train, positions if last else None, bias)
      x = partitioning.constrain(x, 'batch', 'length', 'embed')
    if positions is not None and not self.layers:
      x = jnp.take_along_axis(x, positions[..., None], axis=1)
    pooled = jnp.tanh(self.pooler(x[:, 0])) if self.config.pooler else None
    return BertOutput(x, pooled)

  def _loop(self, x, mask, train, count, bias):
    """Output of the first `count` layers, which run as one loop."""
    config = self.config
    params = sharding.unbox(self.variables['params'])

    def stack(*of):
      """Stack layers; matrices in the compute dtype, vectors unchanged."""
      return jnp.stack(
        [y if y.ndim == 1 else y.astype(config.dtype) for y in of]
      )

    layers = (params[f'layer_{i}'] for i in range(count))
    stacked = jax.tree.map(stack, *layers)
    keys = None
    if train and (config.dropout_rate or config.attention_dropout_rate):
      keys = jax.random.split(self.make_rng('dropout'), count)
    layer = Layer(config, parent=None)

    def turn(x, params_and_key):
      params, key = params_and_key
      rngs = None if key is None else {'dropout': key}
      args = x, mask, train, None, bias
      x = layer.apply({'params': params}, *args, rngs=rngs)
      return partitioning.constrain(x, 'batch', 'length', 'embed'), None

    if config.remat:
      turn = jax.checkpoint(turn)
    return jax.lax.scan(turn, x, (stacked, keys))[0]


def segments(
  ids: Ids, lengths: Int[Array, ' b'], sep_id: int
) -> tuple[Mask, Ids]:
  """Return mask and types of padded rows: 1 after a row's first [SEP]."""
  mask = jnp.arange(ids.shape[1]) < lengths[:, None]
  seps = ids == sep_id
  before = jnp.cumsum(seps, axis=1) - seps
  return mask, (mask & (before > 0)).astype(jnp.int32)


def mean_pool(hidden: Hidden, mask: Mask) -> Float[Array, 'b d']:
  """Return the float32 mean of hidden states where `mask` is True, or 0."""
  mask = mask.astype(jnp.float32)
  total = jnp.einsum('bld,bl->bd', hidden.astype(jnp.float32), mask)
  return total / jnp.maximum(mask.sum(axis=1, keepdims=True), 1.0)


class MlmHead(nn.Module):
  """Masked-language-model head; its decoder is the word embedding table."""

  config: BertConfig

  @nn.compact
  def __call__(
    self, x: Float[Array, '*b d'], table: Float[Array, 'v d']
  ) -> Float[Array, '*b v']:
    """Return float32 logits over the rows of `table`."""
    config = self.config
    x = dense(config, config.d_model, ('embed', 'heads'), name='transform')(x)
    x = LayerNorm(config, name='norm')(ACTIVATIONS[config.activation](x))
    logits = products.table_logits(x, table.astype(config.dtype))
    bias_init = partitioning.partitioned(nn.initializers.zeros, 'vocab')
    shape = (config.vocab_size,)
    return logits + self.param('bias', bias_init, shape, config.param_dtype)


class BertForMaskedLm(nn.Module):
  """Encoder with a masked-language-model head."""

  config: BertConfig

  def setup(self):
    """Create encoder and head."""
    self.bert = Bert(self.config)
    self.mlm_head = MlmHead(self.config)

  def __call__(
    self, *batch: Array | None, train: bool = False
  ) -> Float[Array, 'b _ v']:
    """Return float32 logits at the positions; arguments as of `Bert`."""
    hidden = self.bert(*batch, train=train).hidden
    logits = self.mlm_head(hidden, self.bert.embeddings.word.embedding)
    return partitioning.constrain(logits, 'batch', None, 'vocab')
