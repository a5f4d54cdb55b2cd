# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The embedder of queries and blocks, with the choices of `config.VectorConfig`."""

from flax import linen as nn
from jax import numpy as jnp
from jaxtyping import Array, Float

from realm_jax.nn import config as config_lib
from retrieval.nn import bert, dropout, partitioning

Vectors = Float[Array, 'b e']


def _projection_init(config: config_lib.RealmConfig):
  if config.projection_init == 'identity':
    return lambda key, shape, dtype: jnp.eye(*shape, dtype=dtype)
  return nn.initializers.truncated_normal(config.embedder.initializer_range)


class Embedder(nn.Module):
  """BERT, pooled, projected and normalised to one vector a text."""

  config: config_lib.RealmConfig

  def setup(self):
    """BERT, and projection and norm if the configuration has them."""
    config = self.config
    width_axis = None if config.projection_size else 'embed'
    param_dtype = config.embedder.param_dtype
    constant = nn.initializers.constant
    self.bert = bert.Bert(config.embedder_bert)
    if config.projection_size:
      # Float32 like the scores: one row for each text costs little.
      self.projection = nn.Dense(
        config.projection_size,
        dtype=jnp.float32,
        param_dtype=param_dtype,
        kernel_init=partitioning.partitioned(
          _projection_init(config), 'embed', None
        ),
        bias_init=partitioning.partitioned(constant(0.0), None),
      )
    if config.projection_norm:
      self.projection_norm = nn.LayerNorm(
        epsilon=config.projection_norm_eps,
        dtype=jnp.float32,
        param_dtype=param_dtype,
        use_fast_variance=False,
        scale_init=partitioning.partitioned(
          constant(config.projection_norm_scale), width_axis
        ),
        bias_init=partitioning.partitioned(constant(0.0), width_axis),
      )
    self.dropout = dropout.Dropout(config.projection_dropout_rate)

  def __call__(
    self,
    ids: bert.Ids,
    mask: bert.Mask,
    type_ids: bert.Ids | None = None,
    *,
    train: bool = False,
  ) -> Vectors:
    """Embed queries or blocks: [b, config.vector_size] float32.

    Rows are `[CLS] query [SEP]` or `[CLS] title [SEP] body [SEP]`; arguments are
    those of `bert.Bert`.
    """
    config = self.config
    # For [CLS] alone, the last layer costs a sixth.
    first = None if config.pooling == 'mean' else jnp.zeros_like(ids[:, :1])
    out = self.bert(ids, mask, type_ids, first, train=train)
    if config.pooling == 'pooler':
      x = out.pooled
    elif config.pooling == 'cls':
      x = out.hidden[:, 0]
    else:
      x = bert.mean_pool(out.hidden, mask)
    x = x.astype(jnp.float32)
    if config.projection_size:
      x = self.projection(x)
    if config.projection_norm:
      x = self.projection_norm(x)
    x = partitioning.constrain(x, 'batch', None)
    return self.dropout(x, train)
