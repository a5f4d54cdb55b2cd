# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Arrays of batches as rows of a model, and its methods with dropout."""

from collections.abc import Mapping, Sequence
from typing import Any

from flax import linen as nn
import jax
from jax import numpy as jnp
from jaxtyping import Array, Float


def fold(x: jax.Array) -> jax.Array:
  """[..., n] -> [rows, n]: candidates are rows of the batch."""
  return x.reshape(-1, x.shape[-1])


def fold_rows(
  batch: Mapping[str, jax.Array],
  prefix: str,
  names: Sequence[str] = ('ids', 'mask', 'types'),
) -> list[jax.Array]:
  """Arrays <prefix>_<name> of a batch as rows [rows, length]."""
  return [fold(batch[f'{prefix}_{name}']) for name in names]


def take_targets(
  logits: Float[Array, 'b k m v'], batch: Mapping[str, jax.Array]
) -> Float[Array, 'b k m']:
  """Take the values of the masked tokens."""
  targets = batch['mlm_targets'][:, None, :, None]
  targets = jnp.broadcast_to(targets, (*logits.shape[:3], 1))
  return jnp.take_along_axis(logits, targets, axis=-1)[..., 0]


def apply(
  model: nn.Module,
  params: Any,
  *inputs: Any,
  train: bool,
  key: jax.Array | None,
  method: str | None = None,
) -> Any:
  """Apply a method of a model, with dropout by `key` if it trains."""
  rngs = {'dropout': key} if train else None
  return model.apply(
    {'params': params}, *inputs, train=train, method=method, rngs=rngs
  )
