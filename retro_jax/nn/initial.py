# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Initial parameters of a RETRO, and their places on a mesh."""

import dataclasses
import functools
from typing import Any

from flax import linen as nn
import jax
import jax.numpy as jnp

from retrieval.nn import sharding
from retro_jax.nn import retro, stack
from retro_jax.nn.config import RetroConfig
from retro_jax.nn.copies import copy_init


def init_params(key: jax.Array, config: RetroConfig) -> Any:
  """Initial parameters in the form of the training state, see `flat_params`."""
  return stack.for_training(config, flat_params(key, config))


def flat_params(
  key: jax.Array, config: RetroConfig, embedding_scale: float | None = None
) -> Any:
  """Initial parameters of `Retro(config)`, boxed with their logical axes.

  Args:
    embedding_scale: standard deviation of the embeddings that replace the
      initial ones; None for the model's own.
  """
  c = config
  tokens = jnp.zeros((1, c.chunk_length), jnp.int32)
  neighbors = jnp.zeros((1, 1, 1, c.neighbor_length), jnp.int32)
  mask = jnp.ones(neighbors.shape, bool)
  params = retro.Retro(c).init(key, tokens, neighbors, mask)['params']
  if c.copy_init:
    if embedding_scale is not None:
      c = dataclasses.replace(c, init_scale=embedding_scale)
    start = copy_init.apply(jax.random.fold_in(key, 1), nn.unbox(params), c)
    params = nn.meta.replace_boxed(params, start)
  return params


def param_shardings(
  config: RetroConfig,
  mesh: jax.sharding.Mesh,
  rules: Any = None,
  stacked: bool = False,
) -> Any:
  """NamedShardings of flat or stacked parameters, with the given axis rules."""
  boxed = jax.eval_shape(
    functools.partial(flat_params, config=config), jax.random.key(0)
  )
  if stacked:
    boxed = jax.eval_shape(functools.partial(stack.stack_params, config), boxed)
  return sharding.tree_shardings(boxed, mesh, rules)
