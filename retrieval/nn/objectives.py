# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Training objectives of a retriever.

  name            loss of a row                                        source
  marginal_token  -sum_t log sum_k p(k) p(y_t | k)                     REALM's code
  marginal_seq    -log sum_k p(k) prod_t p(y_t | k)                    REALM, eq. 1
  contrastive     -log sum_{k positive} p(k)                           ORQA, DPR

p(k) is the softmax of a row's scores over its candidates. Arguments:

  scores: [B, K] float32. Relevance, higher is better.
  gold_log_probs: [B, K, L] float32. g, the log-probability of each target token
    with candidate k.
  masks: `Masks`, the targets and candidates that count.

The result is a `means.Mean` in nats: over rows, in marginal_token over target tokens.
A row without a target, a candidate or (contrastive) a positive does not count; if
no row counts, the loss and all gradients are 0. A single candidate has
probability 1, from which nothing can be learned: all objectives raise ValueError
for K = 1.

Dimension key: B rows, K candidates, L target tokens.
"""

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


def float32(x: jax.Array) -> jax.Array:
  """Convert to float32 at least."""
  return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def log_softmax(scores: jax.Array, mask: jax.Array) -> jax.Array:
  """Log-softmax over the last axis, about -1e30 where the mask is False."""
  return jax.nn.log_softmax(jnp.where(mask, float32(scores), NEVER))


def _check(scores: jax.Array) -> None:
  if scores.shape[1] < 2:
    raise ValueError(
      f'Got K={scores.shape[1]} candidate a row: its probability is always 1, so '
      'the retriever would learn nothing. Retrieve at least 2, or give a batch '
      'of 1 hard negatives.'
    )


def mask_gold(gold_log_probs: GoldLogProbs, masks: Masks) -> GoldLogProbs:
  """Log-probabilities with 0 where there is no target or no candidate."""
  mask = masks.candidates[:, :, None] & masks.targets[:, None, :]
  return jnp.where(mask, float32(gold_log_probs), 0.0)


def _tokens(masks: Masks) -> jax.Array:
  """[B, L] tokens that count."""
  return masks.targets & masks.candidates.any(axis=-1, keepdims=True)


def marginal_token(
  scores: Scores, gold_log_probs: GoldLogProbs, masks: Masks
) -> means.Mean:
  """Marginal likelihood of each token by itself, as in REALM's code."""
  _check(scores)
  prior = log_softmax(scores, masks.candidates)
  joint = prior[:, :, None] + mask_gold(gold_log_probs, masks)
  return means.of(-jax.nn.logsumexp(joint, axis=1), _tokens(masks))


def marginal_seq(
  scores: Scores, gold_log_probs: GoldLogProbs, masks: Masks
) -> means.Mean:
  """Marginal likelihood of all tokens of a row (Guu et al. 2020, eq. 1)."""
  _check(scores)
  prior = log_softmax(scores, masks.candidates)
  joint = prior + mask_gold(gold_log_probs, masks).sum(axis=-1)
  rows = _tokens(masks).any(axis=-1)
  return means.of(-jax.nn.logsumexp(joint, axis=1), rows)


def contrastive(scores: Scores, masks: Masks) -> means.Mean:
  """Softmax cross-entropy of the positives (Karpukhin et al. 2020, eq. 2).

  The probabilities of several positives are summed, as in ORQA's early loss.
  """
  _check(scores)
  log_probs = log_softmax(scores, masks.candidates)
  rewarded = jnp.where(masks.positives, log_probs, NEVER)
  rows = (masks.positives & masks.candidates).any(axis=-1)
  return means.of(-jax.nn.logsumexp(rewarded, axis=-1), rows)
