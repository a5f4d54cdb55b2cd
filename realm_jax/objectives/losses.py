# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The marginal likelihood of masked tokens: REALM's loss and its measures.

Guu et al. 2020, sections 3.1, 3.3 and 3.4.

Dimension key: B queries, K candidates (the null block is the first), M masked
positions, V vocabulary.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any, Literal

from flax import linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from realm_jax.nn import batches, realm as model_lib
from retrieval import settings
from retrieval.nn import means, objectives

Scores = Float[Array, 'B K']
Mask = Bool[Array, 'B K']
GoldLogProbs = Float[Array, 'B K M']


@dataclasses.dataclass(frozen=True, kw_only=True)
class LossConfig:
  """Objective of REALM."""

  # marginal_token (released) has a sum over z for each masked token, marginal_seq
  # (paper) one for all of y.
  objective: Literal['marginal_token', 'marginal_seq'] = 'marginal_token'

  __post_init__ = settings.check


def log_prior(scores: Scores, candidates: Mask) -> Float[Array, 'B K']:
  """Prior log p(z | x) in nats: the softmax of f(x, z) over the candidates."""
  return objectives.log_softmax(scores, candidates)


def token_log_likelihood(
  scores: Scores, gold_log_probs: GoldLogProbs, masks: objectives.Masks
) -> Float[Array, 'B M']:
  """Log-likelihood [B, M] of each token in nats, 0 outside of the targets.

  `scores` [B, K] are f(x, z), `gold_log_probs` [B, K, M] log p(y_m | x, z).
  """
  prior = log_prior(scores, masks.candidates)[:, :, None]
  marginal = jax.nn.logsumexp(
    prior + objectives.mask_gold(gold_log_probs, masks), axis=1
  )
  return jnp.where(masks.targets, marginal, 0.0)


def log_posterior(
  scores: Scores, gold_log_probs: GoldLogProbs, masks: objectives.Masks
) -> Float[Array, 'B K']:
  """Posterior log p(z | x, y), by all of y together."""
  joint = log_prior(scores, masks.candidates)
  return jax.nn.log_softmax(
    joint + objectives.mask_gold(gold_log_probs, masks).sum(axis=-1)
  )


def candidate_utility(
  gold_log_probs: GoldLogProbs, masks: objectives.Masks
) -> Float[Array, 'B K']:
  """Gain log p(y | x, z) - log p(y | x, null) of each candidate (eq. 2)."""
  gold = objectives.mask_gold(gold_log_probs, masks).sum(axis=-1)
  return jnp.where(masks.candidates, gold - gold[:, :1], 0.0)


def leave_one_out(
  scores: Scores, gold_log_probs: GoldLogProbs, masks: objectives.Masks
) -> GoldLogProbs:
  """Log-likelihood of each token without each candidate, renormalised."""
  others = ~jnp.eye(scores.shape[1], dtype=bool)
  others = others[None] & masks.candidates[:, None, :]
  prior = objectives.log_softmax(scores[:, None, :], others)
  gold = objectives.mask_gold(gold_log_probs, masks)
  return jax.nn.logsumexp(prior[..., None] + gold[:, None], axis=2)


def marginal_log_probs(
  scores: Scores, log_probs: Float[Array, 'B K M V'], candidates: Mask
) -> Float[Array, 'B M V']:
  """Marginal log p(y_m | x) of every token; its argmax is the prediction."""
  prior = log_prior(scores, candidates)[:, :, None, None]
  return jax.nn.logsumexp(prior + log_probs, axis=1)


def batch_masks(batch: Mapping[str, jax.Array]) -> objectives.Masks:
  """Targets and candidates of a batch of `pipeline`."""
  return objectives.Masks(batch['mlm_mask'], batch['candidate_valid'])


def loss(
  model: nn.Module,
  params: Any,
  batch: Mapping[str, jax.Array],
  key: jax.Array,
  train: bool,
  *,
  objective: str = LossConfig.objective,
) -> tuple[means.Mean, dict[str, means.Mean]]:
  """Negative log p(y | x), which trains retriever and encoder (equation 1).

  Args:
    batch: of `pipeline`; mlm_mask [B, M] and candidate_valid [B, K] count.
    objective: see `LossConfig`.

  Returns:
    The loss in nats, and `metrics`.
  """
  out = batches.apply(model, params, batch, train=train, key=key)
  masks = batch_masks(batch)
  function = getattr(objectives, objective)
  value = function(out.scores, out.gold_log_probs, masks)
  return value, metrics(out, masks, by_rows=objective == 'marginal_seq')


def metrics(
  out: model_lib.RealmOutput, masks: objectives.Masks, *, by_rows: bool = False
) -> dict[str, means.Mean]:
  """Return means over target tokens, or over rows of the mean over targets.

  `nll` -log p(y_m | x); `retrieval_utility`; `null_probability` and `entropy` of
  p(z | x); `accuracy` by the candidate with the highest score.
  """
  out = jax.lax.stop_gradient(out)
  gold, targets = out.gold_log_probs, masks.targets

  def mean(x):
    if not by_rows:
      return means.of(x, targets)
    of_rows = jnp.where(targets, x, 0.0).sum(axis=-1)
    number = targets.sum(axis=-1)
    return means.of(of_rows / jnp.maximum(number, 1), number > 0)

  prior = log_prior(out.scores, masks.candidates)
  marginal = token_log_likelihood(out.scores, gold, masks)
  null = objectives.mask_gold(gold, masks)[:, 0]
  best = prior.argmax(axis=-1)[:, None, None]
  # No argmax over the vocabulary: a token is predicted if none is likelier.
  right = jnp.take_along_axis(gold >= out.best_log_probs, best, axis=1)[:, 0]
  return {
    'nll': mean(-marginal),
    'retrieval_utility': mean(marginal - null),
    'null_probability': mean(jnp.exp(prior[:, :1])),
    'entropy': mean(-(jnp.exp(prior) * prior).sum(axis=-1, keepdims=True)),
    'accuracy': mean(right),
  }
