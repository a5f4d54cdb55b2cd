# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Logical axis names of parameters and activations.

The rule table of `sharding` maps the names to mesh axes. Without a mesh every
helper here is a no-op, so models run unchanged in a unit test or a notebook.
"""

from collections.abc import Callable

from flax import linen as nn
from flax.linen import spmd
import jax

AXES = frozenset(
  {
    'batch',  # examples
    'length',  # tokens of a sequence
    'embed',  # model width
    'heads',  # attention heads times head width (one merged axis)
    'kv',  # width of one head
    'mlp',  # feed-forward width
    'vocab',  # vocabulary entries
    'ngrams',  # rows of tables of n-grams
  }
)


def _check(names: tuple[str | None, ...]) -> None:
  unknown = {name for name in names if name is not None} - AXES
  if unknown:
    raise ValueError(
      f'Unknown logical axes {sorted(unknown)}; known: {sorted(AXES)}.'
    )


def partitioned(init: Callable, *names: str | None) -> Callable:
  """Return an initialiser that boxes its parameter with logical axes.

  `names` are one of `AXES`, or None, for each dimension of the parameter; ValueError
  for others.
  """
  _check(names)
  return nn.with_logical_partitioning(init, names)


def constrain(x: jax.Array, *names: str | None) -> jax.Array:
  """Constrain the sharding of an activation by its logical axes.

  ValueError for a name outside `AXES` or without a rule.
  """
  _check(names)
  return nn.with_logical_constraint(
    x, names, fallback=spmd.RulesFallback.RAISE_ERROR
  )
