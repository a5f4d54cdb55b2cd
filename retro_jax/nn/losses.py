# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The language model's loss (Borgeaud et al. 2021, eq. 1).

Dimension key: B batch, L tokens, V vocabulary.
"""

from collections.abc import Mapping
from typing import Any

from flax import linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from retrieval.nn import means


def forward(
  model: nn.Module, params: Any, batch: Mapping[str, jax.Array], **settings: Any
) -> Any:
  """Apply a model to the arrays of a batch, as `batch_nll` gets them."""
  if 'entries' in batch:  # of a joint model
    settings['entries'] = batch['entries']
  return model.apply(
    {'params': params},
    batch['tokens'],
    batch.get('neighbors'),
    batch.get('neighbor_mask'),
    segment_ids=batch['segment_ids'],
    **settings,
  )


def batch_nll(
  model: nn.Module,
  params: Any,
  batch: Mapping[str, jax.Array],
  *,
  key: jax.Array | None = None,
  train: bool = False,
) -> Float[Array, 'B L']:
  """Negative log-likelihood of each target of a batch.

  Args:
    batch: arrays that `pipeline.ChunkReader.read` returns; without neighbors
      retrieval is off.
    train: whether dropout acts.

  Returns:
    Nats, 0 where nothing is scored.
  """
  rngs = {'dropout': key} if train else None
  targets = batch['targets']
  nll = forward(model, params, batch, targets=targets, train=train, rngs=rngs)
  return jnp.where(batch['loss_mask'], nll, 0.0)


def token_scores(
  model: nn.Module, params: Any, batch: Mapping[str, jax.Array]
) -> tuple[Float[Array, 'B L'], Bool[Array, 'B L']]:
  """Return the nats of each target, and whether it is the likeliest token.

  Args:
    batch: as of `batch_nll`.

  Returns:
    Nats, 0 where nothing is scored; and a mask, True there. All logits exist at once.
  """
  logits, targets = forward(model, params, batch), batch['targets']
  chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
  scored, nats = batch['loss_mask'], jax.nn.logsumexp(logits, axis=-1) - chosen
  likeliest = logits.argmax(axis=-1) == targets
  return jnp.where(scored, nats, 0.0), likeliest | ~scored


def loss(
  model: nn.Module,
  params: Any,
  batch: Mapping[str, jax.Array],
  key: jax.Array,
  train: bool,
) -> tuple[means.Mean, dict[str, means.Mean]]:
  """Mean over scored tokens in nats, and no other metric."""
  nll = batch_nll(model, params, batch, key=key, train=train)
  return means.of(nll, batch['loss_mask']), {}


def loss_of_prompts(
  model: nn.Module, params: Any, batch: Mapping[str, jax.Array], *args: Any
) -> tuple[means.Mean, dict[str, means.Mean]]:
  """`loss` of rows with several prompts, [B, P, L], which read the same neighbors."""
  flat = {
    name: x
    if name in ('neighbors', 'neighbor_mask')
    else x.reshape(-1, x.shape[-1])
    for name, x in batch.items()
  }
  return loss(model, params, flat, *args)
