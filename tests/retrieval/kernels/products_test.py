# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Hand-written gradients equal automatic ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retrieval.kernels import backend, products

RNG = np.random.default_rng(0)


@pytest.fixture
def accelerator(monkeypatch):
  """Run the programs of accelerators on this CPU."""
  monkeypatch.setattr(backend, 'is_cpu', lambda: False)


@pytest.fixture(params=['cpu', 'accelerator'])
def kind(request):
  """Both implementations."""
  if request.param == 'accelerator':
    request.getfixturevalue('accelerator')


def _same_gradients(function, plain, *args):
  """Values and gradients in float64, with a random cotangent."""
  with jax.enable_x64(True):
    args = [jnp.asarray(RNG.standard_normal(shape)) for shape in args]
    value, vjp = jax.vjp(function, *args)
    expected, plain_vjp = jax.vjp(plain, *args)
    g = jnp.asarray(RNG.standard_normal(value.shape))
    np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-12)
    for ours, theirs in zip(vjp(g), plain_vjp(g), strict=True):
      np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-10)


PRODUCTS = [
  (products.linear, '...D,DF->...F', [(2, 3, 4), (4, 6)]),
  (products.linear, 'XD,DF->XF', [(5, 7), (7, 2)]),
  (products.scores, 'HXQK,HXSK->HXQS', [(2, 3, 5, 4), (2, 3, 7, 4)]),
  (products.table_logits, 'XYD,VD->XYV', [(2, 3, 4), (7, 4)]),
]


@pytest.mark.parametrize(('function', 'plain', 'shapes'), PRODUCTS)
def test_products(function, plain, shapes, kind):
  _same_gradients(function, lambda *x: jnp.einsum(plain, *x), *shapes)


@pytest.mark.parametrize('copies', [0, 1, 3])
@pytest.mark.parametrize('masked', [False, True])
@pytest.mark.parametrize('dropped', [False, True])
def test_attend(copies, masked, dropped, kind):
  num_keys = 6
  keep = jnp.asarray(RNG.random((2, 2, 5, num_keys)) < 0.6) if dropped else None
  mask = jnp.asarray(RNG.random((1, 2, 1, num_keys)) < 0.6) if masked else None

  def plain(q, k, v, *bias):
    logits = jnp.einsum('HNQK,HNSK->HNQS', q, k)
    if bias:
      logits = logits + jnp.concatenate([bias[0]] * copies, axis=-1)
    if mask is not None:
      logits = jnp.where(mask, logits, -jnp.inf)
    weights = jax.nn.softmax(logits)
    return (weights if keep is None else weights * keep) @ v

  def ours(q, k, v, *bias):
    return products.attend(q, k, v, bias[0] if bias else None, mask, keep)

  shapes = [(2, 2, 5, 4), (2, 2, num_keys, 4), (2, 2, num_keys, 4)]
  if copies:
    shapes.append((2, 2, 5, num_keys // copies))
  _same_gradients(ours, plain, *shapes)


def equations(jaxpr):
  """Yield all equations, those of programs inside of others too."""
  for equation in jaxpr.eqns:
    yield equation
    for value in jax.tree.leaves(equation.params, is_leaf=_is_jaxpr):
      if _is_jaxpr(value):
        yield from equations(getattr(value, 'jaxpr', value))


def _is_jaxpr(x):
  return hasattr(getattr(x, 'jaxpr', x), 'eqns')


def _operands_of_products(jaxpr):
  for equation in equations(jaxpr):
    if equation.primitive.name == 'dot_general':
      yield from (x.aval for x in equation.invars)


def test_no_product_has_a_float32_operand(accelerator):
  shape = jax.ShapeDtypeStruct((1, 2, 8, 4), jnp.bfloat16)

  def loss(q, k, v):
    return (
      products.attend(q, k, v, products.scores(q, k)).astype(jnp.float32).sum()
    )

  logits = jax.eval_shape(products.scores, shape, shape)
  assert logits.dtype == jnp.float32  # not rounded before the softmax
  jaxpr = jax.make_jaxpr(jax.grad(loss, (0, 1, 2)))(shape, shape, shape)
  operands = [*_operands_of_products(jaxpr.jaxpr)]
  assert len(operands) > 12
  table = jax.ShapeDtypeStruct((7, 4), jnp.bfloat16)
  logits = jax.eval_shape(products.table_logits, shape, table)
  assert logits.dtype == jnp.float32
  jaxpr = jax.make_jaxpr(
    jax.grad(lambda *x: products.table_logits(*x).sum(), (0, 1))
  )(shape, table)
  operands += _operands_of_products(jaxpr.jaxpr)
  assert {x.dtype for x in operands} == {jnp.dtype('bfloat16')}
