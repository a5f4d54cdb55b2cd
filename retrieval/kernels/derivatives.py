# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Derivatives in both directions of functions whose backward pass is written by hand."""

from collections.abc import Callable
from typing import Any

import jax
from jax import custom_derivatives
import jax.numpy as jnp


def linear_call(
  tangent: Callable[[Any, Any], Any],
  transpose: Callable[[Any, Any], Any],
  given: Any,
  tangents: Any,
) -> Any:
  """Return tangent(given, tangents), whose transpose is given.

  For a custom_jvp's rule with `symbolic_zeros`: arguments that nothing
  differentiates, such as frozen parameters, take no part.

  Args:
    tangent: (given, tangents) -> tangent of the output.
    transpose: (given, its cotangent) -> cotangents, like `tangents`.
    given: tree of arrays.
    tangents: tree of arrays and symbolic zeros.
  """

  def is_zero(x):
    return isinstance(x, custom_derivatives.SymbolicZero)

  leaves, tree = jax.tree.flatten(tangents, is_leaf=is_zero)

  def forward(given, some):
    some = iter(some)
    whole = [
      jnp.zeros(x.shape, x.dtype) if is_zero(x) else next(some) for x in leaves
    ]
    return tangent(given, jax.tree.unflatten(tree, whole))

  def backward(given, g):
    found = tree.flatten_up_to(transpose(given, g))
    return [x for x, at in zip(found, leaves, strict=True) if not is_zero(at)]

  some = [x for x in leaves if not is_zero(x)]
  return custom_derivatives.linear_call(forward, backward, given, some)
