# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Norms and products with matrices, which every branch of RETRO is made of.

Dimension key: N rows, D and F widths.
"""

from collections.abc import Sequence

from flax import linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
import numpy.typing as npt

from retrieval.kernels import products
from retrieval.nn import partitioning


def accumulation_dtype(dtype: npt.DTypeLike) -> jnp.dtype:
  """Type of softmax, norms and losses: float32, or float64 if asked for."""
  return jnp.promote_types(dtype, jnp.float32)


class Norm(nn.Module):
  """RMSNorm (Zhang and Sennrich 2019) or LayerNorm (Ba et al. 2016), in float32."""

  epsilon: float
  dtype: str
  param_dtype: str
  centered: bool = False  # LayerNorm: of x less its mean, with a bias

  @nn.compact
  def __call__(self, x: Float[Array, '... D']) -> Float[Array, '... D']:
    """Normalize the last axis of `x`."""
    wide = accumulation_dtype(self.dtype)

    def vector(name, init):
      init = partitioning.partitioned(init, 'embed')
      return self.param(name, init, x.shape[-1:], self.param_dtype).astype(wide)

    scale = vector('scale', nn.initializers.ones)
    x = x.astype(wide)
    if self.centered:
      x = x - jnp.mean(x, axis=-1, keepdims=True)
    mean_square = jnp.mean(x * x, axis=-1, keepdims=True)
    x = x * jax.lax.rsqrt(mean_square + self.epsilon) * scale
    if self.centered:
      x = x + vector('bias', nn.initializers.zeros)
    return x.astype(self.dtype)


def project(
  module: nn.Module,
  names: Sequence[str],
  x: Float[Array, '*N D'],
  width: int,
  axes: tuple[str | None, str],
  scale: float,
  bias: bool = False,
) -> list[Float[Array, '*N F']]:
  """Multiply by matrices, parameters of a module, whose config has both dtypes.

  Args:
    axes: logical axes of the matrices [D, F]; None: D is on every device whole.
    scale: their initial standard deviation.
    bias: whether `name`_bias is added.
  """
  c = module.config
  init = partitioning.partitioned(nn.initializers.normal(scale), *axes)
  zeros = partitioning.partitioned(nn.initializers.zeros, axes[-1])

  def parameter(name, init, *shape):
    return module.param(name, init, shape, c.param_dtype).astype(c.dtype)

  matrices, biases = [], []
  for name in names:
    matrices.append(parameter(name, init, x.shape[-1], width))
    if bias:
      biases.append(parameter(f'{name}_bias', zeros, width))
  outputs = products.linears(x, matrices)
  return (
    [y + b for y, b in zip(outputs, biases, strict=True)] if bias else outputs
  )
