# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Products and attention of `products` for CPUs, with hand-written gradients.

On a CPU, XLA transposes the operands of a matrix gradient first, and its attention
gradient keeps several arrays of the logits' size. Here every product of a backward
pass contracts the cheap axis, and attention keeps its weights as the only array of
the logits' size. Forward-mode differentiation (jvp) is not supported.

Dimension key: X any leading axes, D in, F out, M and N rows and heads in any
order, Q queries, S keys, K head width.
"""

import jax
from jax import lax
import jax.numpy as jnp


def _product(x, y):
  """Return x @ y. XLA is fast at bfloat16 where it writes float32."""
  wide = jnp.promote_types(x.dtype, jnp.float32)
  return jnp.matmul(x, y, preferred_element_type=wide).astype(x.dtype)


def _transposed(x):
  """Return x^T as a separate array: XLA folds a plain one into a product.

  Its products of bfloat16 are fast only where both operands lie in rows.
  """
  return jnp.take(jnp.swapaxes(x, -1, -2), jnp.arange(x.shape[-1]), axis=-2)


def _transpose_of_product(small, large):
  """Return (small^T large)^T: [*, Q, K], [*, Q, S] -> [*, S, K].

  The barrier keeps XLA from computing large^T small instead.
  """
  if small.dtype == jnp.bfloat16:
    return jnp.swapaxes(_product(_transposed(small), large), -1, -2)
  batch = tuple(range(small.ndim - 2))
  contract = (small.ndim - 2,)
  product = lax.dot_general(
    small, large, ((contract, contract), (batch, batch))
  )
  return jnp.swapaxes(lax.optimization_barrier(product), -1, -2)


@jax.custom_vjp
def linear(x, matrix):
  """As `products.linear`."""
  return _product(x, matrix)


def _linear_forward(x, matrix):
  return _product(x, matrix), (x, matrix)


def _linear_backward(residuals, g):
  x, matrix = residuals
  g = lax.optimization_barrier(g)
  flat_x, flat_g = x.reshape(-1, x.shape[-1]), g.reshape(-1, g.shape[-1])
  fast = x.dtype == jnp.bfloat16
  if x.shape[-1] > g.shape[-1]:
    d_matrix = _transpose_of_product(flat_g, flat_x)
  elif fast:
    d_matrix = _product(_transposed(flat_x), flat_g)
  else:
    d_matrix = lax.dot_general(flat_x, flat_g, (((0,), (0,)), ((), ())))
  return _product(g, _transposed(matrix) if fast else matrix.T), d_matrix


linear.defvjp(_linear_forward, _linear_backward)


def _inner(queries, keys, dtype=None):
  return jnp.einsum(
    '...QK,...SK->...QS', queries, keys, preferred_element_type=dtype
  )


@jax.custom_vjp
def scores(queries, keys):
  """As `products.scores`."""
  return _inner(queries, keys)


def _scores_forward(queries, keys):
  return scores(queries, keys), (queries, keys)


def _scores_backward(residuals, g):
  queries, keys = residuals
  return _product(g, keys), _transpose_of_product(queries, g)


scores.defvjp(_scores_forward, _scores_backward)


def dropped(x, keep):
  """Return x where `keep` is True, if there is a mask."""
  return x if keep is None else jnp.where(keep, x, 0)


def softmax(logits, bias, mask):
  """Return the weights of logits, with bias and mask as in `products.attend`."""
  if bias is not None:
    copies = logits.shape[-1] // bias.shape[-1]
    shape = (*logits.shape[:-1], copies, bias.shape[-1])
    added = logits.reshape(shape) + bias[..., None, :]
    logits = added.reshape(logits.shape)
  if mask is not None:
    logits = jnp.where(mask, logits, jnp.finfo(logits.dtype).min)
  return jax.nn.softmax(logits, axis=-1)


def weights(queries, keys, bias, mask):
  """As `products.weights`."""
  wide = jnp.promote_types(queries.dtype, jnp.float32)
  shares = softmax(_inner(queries, keys, wide), bias, mask)
  return shares.astype(queries.dtype)


@jax.custom_vjp
def attend(queries, keys, values, bias, mask, keep):
  """As `products.attend`."""
  return _product(dropped(weights(queries, keys, bias, mask), keep), values)


def _attend_forward(queries, keys, values, bias, mask, keep):
  shares = weights(queries, keys, bias, mask)
  out = _product(dropped(shares, keep), values)
  size = None if bias is None else bias.shape[-1]
  return out, (queries, keys, values, shares, out, keep, size)


def _attend_backward(residuals, g):
  queries, keys, values, shares, out, keep, size = residuals
  wide = jnp.promote_types(queries.dtype, jnp.float32)
  g = lax.optimization_barrier(g)
  d_values = _transpose_of_product(g, dropped(shares, keep))
  # The sum over keys of weight * d weight, computed from the small arrays.
  delta = jnp.sum(g.astype(wide) * out.astype(wide), axis=-1, keepdims=True)
  d_weights = dropped(_inner(g, values, wide), keep)
  d_logits = (shares.astype(wide) * (d_weights - delta)).astype(g.dtype)
  d_logits = lax.optimization_barrier(d_logits)
  d_bias = None
  if size is not None:
    copies = (*d_logits.shape[:-1], -1, size)
    d_bias = d_logits.reshape(copies).sum(-2)
  d_keys = _transpose_of_product(queries, d_logits)
  d_queries = _product(d_logits, keys)
  return d_queries, d_keys, d_values, d_bias, None, None


attend.defvjp(_attend_forward, _attend_backward)
