# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""FLOPs and arrays of a traced program, its loops counted as often as they run."""

from collections.abc import Iterator, Mapping
import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class Traced:
  """A program that could be compiled."""

  traced: Any  # of jax.jit(...).trace
  mesh: Mapping[str, int]  # axis -> devices that the program uses
  dtype: str  # of its products
  model_flops: float  # of the model's formula, on all devices of the mesh


@dataclasses.dataclass(frozen=True)
class Product:
  """A matrix product of the program."""

  flops: float  # of all times that it runs, on all devices
  operands: tuple[jax.core.ShapedArray, jax.core.ShapedArray]

  @property
  def is_wide(self) -> bool:
    """Whether an operand is float32 or wider."""
    return any(
      jnp.issubdtype(x.dtype, jnp.floating) and x.dtype.itemsize >= 4
      for x in self.operands
    )


def products(jaxpr: Any, times: float = 1.0) -> Iterator[Product]:
  """Yield each matrix product of a jaxpr and of those inside it.

  A `while` whose length is not known counts once, of a `cond` the branch with the
  most FLOPs, and a kernel as it estimates itself.
  """
  for equation in jaxpr.eqns:
    name, params = equation.primitive.name, equation.params
    if name == 'dot_general':
      (contracted, _), _ = params['dimension_numbers']
      a, b = (x.aval for x in equation.invars)
      length = math.prod(a.shape[i] for i in contracted)
      size = math.prod(equation.outvars[0].aval.shape)
      yield Product(2.0 * times * size * length, (a, b))
    elif name == 'cond':
      branches = [[*products(x.jaxpr, times)] for x in params['branches']]
      yield from max(branches, key=flops)
    elif name == 'pallas_call' and params.get('cost_estimate'):
      # Its loops may be as long as the point of the grid wants.
      total = times * params['cost_estimate'].flops
      yield Product(total, tuple(x.aval for x in equation.invars[:2]))
    else:
      if name == 'scan':
        repeats = params['length']
      elif name == 'shard_map':  # of one device
        repeats = params['mesh'].size
      elif name == 'pallas_call':  # of one point of the grid
        repeats = math.prod(params['grid_mapping'].grid)
      else:
        repeats = 1
      if name == 'linear_call':  # its transpose stands beside it
        params = {'callee': params['callee']}
      for inner in _inside(params):
        yield from products(inner, times * repeats)


def flops(found: list[Product]) -> float:
  """Return the FLOPs of products."""
  return sum(x.flops for x in found)


def largest(jaxpr: Any, count: int) -> list[str]:
  """Return size, type and origin of the largest arrays that a program makes."""
  found = sorted(
    ((y, x) for x, y in dict(_arrays(jaxpr)).items()), reverse=True
  )
  return [f'{size / 2**30:.2f} GiB {what}' for size, what in found[:count]]


def _arrays(jaxpr: Any) -> Iterator[tuple[str, float]]:
  for equation in jaxpr.eqns:
    for x in (v.aval for v in equation.outvars):
      if isinstance(x, jax.core.ShapedArray):
        size = math.prod(x.shape) * getattr(x.dtype, 'itemsize', 0)
        yield f'{x.str_short()} of {equation.primitive.name}', size
    for inner in _inside(equation.params):
      yield from _arrays(inner)


def _inside(params: Mapping[str, Any]) -> Iterator[Any]:
  """Yield the jaxprs among the parameters of an equation."""

  def is_jaxpr(x):
    return hasattr(getattr(x, 'jaxpr', x), 'eqns')

  for value in jax.tree.leaves(params, is_leaf=is_jaxpr):
    if is_jaxpr(value):
      yield getattr(value, 'jaxpr', value)
