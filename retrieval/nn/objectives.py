# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Training objectives of a retriever: one registry, one signature.

  name            loss of a row                                        source
  marginal_token  -sum_t log sum_k p(k) p(y_t | k)                     REALM's code
  marginal_seq    -log sum_k p(k) prod_t p(y_t | k)                    REALM, eq. 1
  emdr2           marginal_token, no gradient to the reader            EMDR2
  pdist           KL(softmax(mean_t g / temperature_gold) || p)        Atlas
  loop            KL(softmax(-mean_t g without k / ...) || p)          Atlas
  replug_lsr      KL(p || softmax(mean_t g / temperature_gold))        REPLUG
  contrastive     -log sum_{k positive} p(k)                           ORQA, DPR

p(k) is the softmax of a row's scores, in pdist, loop and replug_lsr over temperature_score,
over its candidates. An `Objective` takes

  scores: [B, K] float32. Relevance, higher is better.
  gold_log_probs: [B, K, L] float32. g, the log-probability of each target token
    with candidate k (for loop: with all candidates but k). Contrastive
    ignores this argument, which may be None.
  masks: `Masks`, the targets and candidates that count.

and returns a `means.Mean` in nats: over rows, in marginal_token and emdr2 over
target tokens. A KL divergence is summed over candidates, never averaged. A
row without a target, a candidate or (contrastive) a positive does not count; if
no row counts, the loss and all gradients are 0. A single candidate has
probability 1, from which nothing can be learned: all objectives raise ValueError
for K = 1.

Dimension key: B rows, K candidates, L target tokens.
"""

from collections.abc import Callable
import functools

from flax import struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from retrieval.nn import means

# The score outside of a mask. It is finite, so that a difference of two scores
# is never NaN.
NEVER = -1e30

Scores = Float[Array, 'B K']
GoldLogProbs = Float[Array, 'B K L']


@struct.dataclass
class Masks:
  """Targets and candidates that count."""

  # [B, L] bool. Tokens to predict; None where nothing is predicted.
  targets: jax.Array | None
  candidates: jax.Array  # [B, K] bool. False has probability 0 and no gradient.
  # [B, K] bool. Candidates that contrastive rewards, else None.
  positives: jax.Array | None = None


Objective = Callable[[jax.Array, jax.Array | None, Masks], means.Mean]
OBJECTIVES: dict[str, Objective] = {}


def _objective(function: Objective) -> Objective:
  """Register an objective by its name; check its number of candidates."""
  name = function.__name__

  @functools.wraps(function)
  def checked(scores, gold_log_probs, masks, **settings):
    if scores.shape[1] < 2:
      raise ValueError(
        f'Objective {name!r} got K={scores.shape[1]} candidate a row: its '
        'probability is always 1, so the retriever would learn nothing. Retrieve '
        'at least 2, or give a batch of 1 hard negatives.'
      )
    return function(scores, gold_log_probs, masks, **settings)

  OBJECTIVES[name] = checked
  return checked


def float32(x: jax.Array) -> jax.Array:
  """Convert to float32 at least."""
  return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def log_softmax(
  scores: jax.Array, mask: jax.Array, temperature: float = 1.0
) -> jax.Array:
  """Log-softmax over the last axis, about -1e30 where the mask is False."""
  scores = float32(scores) / temperature
  return jax.nn.log_softmax(jnp.where(mask, scores, NEVER))


def mask_gold(gold_log_probs: GoldLogProbs, masks: Masks) -> GoldLogProbs:
  """Log-probabilities with 0 where there is no target or no candidate."""
  mask = masks.candidates[:, :, None] & masks.targets[:, None, :]
  return jnp.where(mask, float32(gold_log_probs), 0.0)


def _tokens(masks: Masks) -> jax.Array:
  """[B, L] tokens that count."""
  return masks.targets & masks.candidates.any(axis=-1, keepdims=True)


def _rows(masks: Masks) -> jax.Array:
  """[B] rows that count."""
  return _tokens(masks).any(axis=-1)


def _mean_gold(gold_log_probs: jax.Array, masks: Masks) -> jax.Array:
  """[B, K] mean over target tokens, without gradient."""
  number = masks.targets.sum(axis=-1, keepdims=True)
  total = mask_gold(jax.lax.stop_gradient(gold_log_probs), masks).sum(axis=-1)
  return total / jnp.maximum(number, 1)


def _mean_kl(log_p: jax.Array, log_q: jax.Array, masks: Masks) -> means.Mean:
  """KL(p || q) over candidates; mean over rows."""
  terms = jnp.exp(log_p) * (log_p - log_q)
  terms = jnp.where(masks.candidates, terms, 0.0)
  return means.of(terms.sum(axis=-1), _rows(masks))


def _log_shares(
  scores: jax.Array,
  gold_log_probs: jax.Array,
  masks: Masks,
  temperature_score: float,
  temperature_gold: float,
) -> tuple[jax.Array, jax.Array]:
  """Log-probabilities [B, K] by retriever and, constant, by reader."""
  gold = _mean_gold(gold_log_probs, masks)
  return (
    log_softmax(scores, masks.candidates, temperature_score),
    log_softmax(gold, masks.candidates, temperature_gold),
  )


@_objective
def marginal_token(
  scores: Scores, gold_log_probs: GoldLogProbs, masks: Masks
) -> means.Mean:
  """Marginal likelihood of each token by itself, as in REALM's code."""
  prior = log_softmax(scores, masks.candidates)
  joint = prior[:, :, None] + mask_gold(gold_log_probs, masks)
  return means.of(-jax.nn.logsumexp(joint, axis=1), _tokens(masks))


@_objective
def marginal_seq(
  scores: Scores, gold_log_probs: GoldLogProbs, masks: Masks
) -> means.Mean:
  """Marginal likelihood of all tokens of a row (Guu et al. 2020, eq. 1)."""
  prior = log_softmax(scores, masks.candidates)
  joint = prior + mask_gold(gold_log_probs, masks).sum(axis=-1)
  return means.of(-jax.nn.logsumexp(joint, axis=1), _rows(masks))


@_objective
def emdr2(
  scores: Scores, gold_log_probs: GoldLogProbs, masks: Masks
) -> means.Mean:
  """`marginal_token` that trains only the retriever (Sachan et al. 2021).

  EMDR2's scores are inner products over sqrt(D), D the embedding width.
  """
  return marginal_token(scores, jax.lax.stop_gradient(gold_log_probs), masks)


@_objective
def pdist(
  scores: Scores,
  gold_log_probs: GoldLogProbs,
  masks: Masks,
  *,
  temperature_score: float = 0.01,
  temperature_gold: float = 0.01,
) -> means.Mean:
  """Perplexity distillation (Izacard et al. 2022, section 2.2).

  The default temperatures are for scores over sqrt(D), D the embedding width.
  """
  temperatures = temperature_score, temperature_gold
  log_p, log_q = _log_shares(scores, gold_log_probs, masks, *temperatures)
  return _mean_kl(log_q, log_p, masks)


@_objective
def loop(
  scores: Scores,
  gold_log_probs: GoldLogProbs,
  masks: Masks,
  *,
  temperature_score: float = 0.01,
  temperature_gold: float = 0.01,
) -> means.Mean:
  """Leave-one-out perplexity distillation (Izacard et al. 2022, section 2.2).

  gold_log_probs[:, k] is the answer with all candidates except k, which takes
  a pass of the reader for each k. Scores and temperatures are those of `pdist`.
  """
  temperatures = temperature_score, temperature_gold
  log_p, log_q = _log_shares(scores, -gold_log_probs, masks, *temperatures)
  return _mean_kl(log_q, log_p, masks)


@_objective
def replug_lsr(
  scores: Scores,
  gold_log_probs: GoldLogProbs,
  masks: Masks,
  *,
  temperature_score: float = 0.1,
  temperature_gold: float = 0.1,
) -> means.Mean:
  """Supervision by a language model (Shi et al. 2023, section 4).

  The default temperatures, the paper's gamma and beta, are for cosines, the
  paper's scores. The paper's formula has the probability of the answer; its
  released code and this function have the log-probability.
  """
  temperatures = temperature_score, temperature_gold
  log_p, log_q = _log_shares(scores, gold_log_probs, masks, *temperatures)
  return _mean_kl(log_p, log_q, masks)


@_objective
def contrastive(
  scores: Scores,
  gold_log_probs: GoldLogProbs | None,
  masks: Masks,
  *,
  temperature: float = 1.0,
) -> means.Mean:
  """Softmax cross-entropy of the positives (Karpukhin et al. 2020, eq. 2).

  The probabilities of several positives are summed, as in ORQA's early loss.
  """
  del gold_log_probs
  if masks.positives is None:
    raise ValueError("Objective 'contrastive' needs masks.positives.")
  log_probs = log_softmax(scores, masks.candidates, temperature)
  rewarded = jnp.where(masks.positives, log_probs, NEVER)
  rows = (masks.positives & masks.candidates).any(axis=-1)
  return means.of(-jax.nn.logsumexp(rewarded, axis=-1), rows)


def get(name: str, **settings: float) -> Objective:
  """Return an objective of `OBJECTIVES` with its keyword arguments bound.

  Raises:
    KeyError: for an unknown name.
  """
  return functools.partial(OBJECTIVES[name], **settings)
