# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The likelihood of masked tokens, marginal over candidates, and what is trained.

Guu et al. 2020, sections 3.1 and 3.3. The functions of p(z | x) and p(y | x, z)
here measure; `objectives` holds what is minimised, `loss` binds both to the model.

Dimension key: B queries, K candidates (the null block is the first), M masked
positions, V vocabulary.
"""

from collections.abc import Mapping
from typing import Any

from flax import linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array
from jaxtyping import Bool
from jaxtyping import Float
from jaxtyping import Int

from realm_jax.nn import realm as model_lib
from realm_jax.objectives import objectives

# Objectives that train retriever and encoder together, by one likelihood.
JOINT = ('marginal_token', 'marginal_seq')
# The score of a candidate that is none; finite, so no difference of two is NaN.
_NEVER = -1e9


def _log_softmax(scores: jax.Array, mask: jax.Array) -> jax.Array:
  return jax.nn.log_softmax(jnp.where(mask, scores, _NEVER))


def log_prior(
  scores: Float[Array, 'B K'], candidates: Bool[Array, 'B K']
) -> Float[Array, 'B K']:
  """Prior log p(z | x): the softmax of the scores over the candidates.

  Args:
    scores: [B, K] float32. f(x, z).
    candidates: [B, K] bool. False where there is none; its probability is 0.

  Returns:
    [B, K], in nats; about -1e9 where there is no candidate.
  """
  return _log_softmax(scores, candidates)


def _gold(gold_log_probs: jax.Array, masks: objectives.Masks) -> jax.Array:
  """[B, K, M], 0 at what is no target or no candidate, whatever stood there."""
  mask = masks.candidates[:, :, None] & masks.targets[:, None, :]
  return jnp.where(mask, gold_log_probs, 0.0)


def token_log_likelihood(
  scores: Float[Array, 'B K'],
  gold_log_probs: Float[Array, 'B K M'],
  masks: objectives.Masks,
) -> Float[Array, 'B M']:
  """Each token marginalised by itself: log p(y_m | x), 0 at what is no target.

  Args:
    scores: [B, K] f(x, z).
    gold_log_probs: [B, K, M] log p(y_m | x, z).
    masks: what counts.

  Returns:
    [B, M], in nats.
  """
  prior = log_prior(scores, masks.candidates)[:, :, None]
  marginal = jax.nn.logsumexp(prior + _gold(gold_log_probs, masks), axis=1)
  return jnp.where(masks.targets, marginal, 0.0)


def log_posterior(
  scores: Float[Array, 'B K'],
  gold_log_probs: Float[Array, 'B K M'],
  masks: objectives.Masks,
) -> Float[Array, 'B K']:
  """Posterior log p(z | x, y), by all of y together; arguments as above."""
  joint = log_prior(scores, masks.candidates)
  return jax.nn.log_softmax(joint + _gold(gold_log_probs, masks).sum(axis=-1))


def retrieval_utility(
  scores: Float[Array, 'B K'],
  gold_log_probs: Float[Array, 'B K M'],
  masks: objectives.Masks,
) -> Float[Array, 'B M']:
  """What retrieval gains: log p(y_m | x) - log p(y_m | x, null).

  The released code's metric, of which it takes the mean over target tokens;
  arguments as above.

  Returns:
    [B, M], in nats; 0 at what is no target.
  """
  null = _gold(gold_log_probs, masks)[:, 0]
  return token_log_likelihood(scores, gold_log_probs, masks) - null


def candidate_utility(
  gold_log_probs: Float[Array, 'B K M'], masks: objectives.Masks
) -> Float[Array, 'B K']:
  """What a candidate gains: log p(y | x, z) - log p(y | x, null), eq. 2.

  Args:
    gold_log_probs: [B, K, M] log p(y_m | x, z).
    masks: what counts.

  Returns:
    [B, K], in nats, over all tokens together; 0 where there is no candidate.
  """
  gold = _gold(gold_log_probs, masks).sum(axis=-1)
  return jnp.where(masks.candidates, gold - gold[:, :1], 0.0)


def leave_one_out(
  scores: Float[Array, 'B K'],
  gold_log_probs: Float[Array, 'B K M'],
  masks: objectives.Masks,
) -> Float[Array, 'B K M']:
  """The same log p(y_m | x) without each candidate in turn; arguments as above.

  A marginal needs no further pass of the encoder for this: without a candidate
  the others' probabilities are renormalised.
  """
  others = ~jnp.eye(scores.shape[1], dtype=bool)
  others = others[None] & masks.candidates[:, None, :]
  prior = _log_softmax(scores[:, None, :], others)
  gold = _gold(gold_log_probs, masks)
  return jax.nn.logsumexp(prior[..., None] + gold[:, None], axis=2)


def marginal_log_probs(
  scores: Float[Array, 'B K'],
  log_probs: Float[Array, 'B K M V'],
  candidates: Bool[Array, 'B K'],
) -> Float[Array, 'B M V']:
  """Marginal log p(y_m | x) of every token, to predict with.

  Args:
    scores: [B, K] f(x, z).
    log_probs: [B, K, M, V] log p(y_m | x, z), see `model.Realm.encode`.
    candidates: [B, K] bool. False where there is none.

  Returns:
    [B, M, V], in nats. Its argmax is the model's prediction.
  """
  prior = log_prior(scores, candidates)[:, :, None, None]
  return jax.nn.logsumexp(prior + log_probs, axis=1)


def exact_match(
  tokens: Int[Array, 'B M'],
  targets: Int[Array, 'B M'],
  mask: Bool[Array, 'B M'],
) -> Bool[Array, ' B']:
  """Whether every target of a row was predicted; False for a row without one.

  Args:
    tokens: [B, M] predictions.
    targets: [B, M] what stood there.
    mask: [B, M] which positions are targets.

  Returns:
    [B] bool.
  """
  return ((tokens == targets) | ~mask).all(axis=-1) & mask.any(axis=-1)


def batch_masks(batch: Mapping[str, jax.Array]) -> objectives.Masks:
  """What counts in a batch of `pipeline`."""
  return objectives.Masks(batch['mlm_mask'], batch['candidate_valid'])


def loss(
  model: nn.Module,
  params: Any,
  batch: Mapping[str, jax.Array],
  key: jax.Array,
  train: bool,
  *,
  objective: str = 'marginal_token',
  retriever_weight: float = 1.0,
  objective_settings: Mapping[str, float | str] | None = None,
) -> tuple[Float[Array, ''], dict[str, Float[Array, '']]]:
  """Trains the encoder by the marginal likelihood, the retriever by `objective`.

  Args:
    model: `model.Realm`.
    params: its parameters.
    batch: see `model.Realm.__call__`, and mlm_mask [B, M] and candidate_valid
      [B, K], what counts.
    key: of dropout.
    train: whether dropout acts.
    objective: of `objectives.OBJECTIVES`. One of `JOINT` trains both parts;
      another one the retriever, without gradient to the encoder, which learns
      from marginal_token without gradient to the retriever.
    retriever_weight: times the objective where it is not of `JOINT`.
    objective_settings: its temperatures, where it has any.

  Returns:
    The loss in nats and metrics, the means over target tokens (of marginal_seq
    over rows, of each the mean over its targets): `nll` -log p(y_m | x);
    `retrieval_utility`; `null_probability` and `entropy` in nats of p(z | x);
    `accuracy` of tokens, by the candidate with the highest score;
    `retriever_loss` where the objective is not of `JOINT`; and `weight`, the
    number of tokens or rows.
  """
  out = model.apply(
    {'params': params},
    batch,
    train=train,
    rngs={'dropout': key} if train else None,
  )
  masks = batch_masks(batch)
  function = objectives.get(objective, **(objective_settings or {}))
  metrics = _metrics(out, masks, by_rows=objective == 'marginal_seq')
  if objective in JOINT:
    return function(out.scores, out.gold_log_probs, masks), metrics
  fixed_scores, gold = jax.lax.stop_gradient((out.scores, out.gold_log_probs))
  if objective == 'loop':
    gold = leave_one_out(fixed_scores, gold, masks)
  encoder = objectives.get('marginal_token')
  value = encoder(fixed_scores, out.gold_log_probs, masks)
  retriever = function(out.scores, gold, masks)
  metrics['retriever_loss'] = retriever
  return value + retriever_weight * retriever, metrics


def _metrics(
  out: model_lib.RealmOutput, masks: objectives.Masks, *, by_rows: bool
) -> dict[str, jax.Array]:
  """Means in which each token weighs the same, or each row."""
  out = jax.lax.stop_gradient(out)
  gold = out.gold_log_probs
  weights = masks.targets.astype(jnp.float32)
  if by_rows:
    weights /= jnp.maximum(weights.sum(axis=-1, keepdims=True), 1.0)
  # Number of rows with a target; a sum of thirds would not be whole.
  number = masks.targets.any(axis=-1) if by_rows else masks.targets
  number = number.sum(dtype=jnp.float32)

  def mean(x):
    return (weights * x).sum() / jnp.maximum(number, 1.0)

  prior = log_prior(out.scores, masks.candidates)
  best = prior.argmax(axis=-1)[:, None, None]
  # No argmax over the vocabulary: a token is predicted if none is likelier.
  found = jnp.take_along_axis(gold >= out.best_log_probs, best, axis=1)[:, 0]
  return {
    'nll': -mean(token_log_likelihood(out.scores, gold, masks)),
    'retrieval_utility': mean(retrieval_utility(out.scores, gold, masks)),
    'null_probability': mean(jnp.exp(prior[:, :1])),
    'entropy': -mean((jnp.exp(prior) * prior).sum(axis=-1, keepdims=True)),
    'accuracy': mean(found),
    'weight': number,
  }
