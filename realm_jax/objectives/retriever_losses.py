# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Objectives that train REALM's retriever, next to the marginal likelihood.

`retrieval.nn.objectives` names their papers.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any, Literal

from flax import linen as nn
import jax
import jax.numpy as jnp

from realm_jax.nn import batches
from realm_jax.objectives import losses
from retrieval import settings
from retrieval.nn import means, objectives

# Objectives that train retriever and encoder together, by one likelihood.
JOINT = ('marginal_token', 'marginal_seq')


@dataclasses.dataclass(frozen=True, kw_only=True)
class LossConfig:
  """Objective of REALM."""

  # marginal_token (released), marginal_seq (paper) train both together; pdist,
  # emdr2, loop, replug_lsr train the retriever beside the marginal.
  objective: Literal[
    'marginal_token', 'marginal_seq', 'pdist', 'emdr2', 'loop', 'replug_lsr'
  ] = 'marginal_token'

  __post_init__ = settings.check


def leave_one_out(
  scores: losses.Scores,
  gold_log_probs: losses.GoldLogProbs,
  masks: objectives.Masks,
) -> losses.GoldLogProbs:
  """Log-likelihood of each token without each candidate, renormalised."""
  others = ~jnp.eye(scores.shape[1], dtype=bool)
  others = others[None] & masks.candidates[:, None, :]
  prior = objectives.log_softmax(scores[:, None, :], others)
  gold = objectives.mask_gold(gold_log_probs, masks)
  return jax.nn.logsumexp(prior[..., None] + gold[:, None], axis=2)


def loss(
  model: nn.Module,
  params: Any,
  batch: Mapping[str, jax.Array],
  key: jax.Array,
  train: bool,
  *,
  objective: str = LossConfig.objective,
  retriever_weight: float = 1.0,
) -> tuple[means.Mean, dict[str, means.Mean]]:
  """Train the encoder by marginal likelihood, the retriever by `objective`.

  Args:
    objective: of `objectives.OBJECTIVES`. Those of `JOINT` train both parts, as
      `losses.loss`; others the retriever alone, and the encoder learns from
      marginal_token.
    retriever_weight: factor of an objective outside of `JOINT`.

  Returns:
    As `losses.loss`, with `retriever_loss` for an objective outside of `JOINT`.
  """
  if objective in JOINT:
    return losses.loss(model, params, batch, key, train, objective=objective)
  out = batches.apply(model, params, batch, train=train, key=key)
  masks = losses.batch_masks(batch)
  fixed_scores, gold = jax.lax.stop_gradient((out.scores, out.gold_log_probs))
  if objective == 'loop':
    gold = leave_one_out(fixed_scores, gold, masks)
  encoder = objectives.get('marginal_token')
  value = encoder(fixed_scores, out.gold_log_probs, masks)
  retriever = objectives.get(objective)(out.scores, gold, masks)
  metrics = losses.metrics(out, masks) | {'retriever_loss': retriever}
  return value + retriever_weight * retriever, metrics
