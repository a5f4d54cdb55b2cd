# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""What a retriever can be trained on: one registry, one signature.

  name            loss of a row                                        source
  marginal_token  -sum_t log sum_k p(k) p(y_t | k)                     REALM's code
  marginal_seq    -log sum_k p(k) prod_t p(y_t | k)                    REALM, eq. 1
  emdr2           marginal_token, no gradient to the reader            EMDR2
  pdist           KL(softmax(mean_t g) || p)                           Atlas
  loop            KL(softmax(-mean_t g without k) || p)                Atlas
  replug_lsr      KL(p || softmax(mean_t g))                           REPLUG
  contrastive     -log sum_{k positive} p(k)                           ORQA, DPR

p(k) is the softmax of a row's scores over its candidates. An `Objective` takes

  scores: [B, K] float32. Relevance, higher is better.
  gold_log_probs: [B, K, L] float32. g, the log-probability of each target token
    given candidate k (of loop: given all candidates but k). Contrastive does not
    read it; None will do.
  masks: `Masks`, what counts.

and returns [] float32 nats: the mean over rows, in marginal_token and emdr2 over
target tokens; never over rows times candidates, as a KL divergence averaged over
all its terms would be. A row without target, candidate or (contrastive) positive
does not count; where none counts the loss is 0 and so are all gradients. Of one
candidate a row nothing can be learned, which raises ValueError.

Dimension key: B rows, K candidates, L target tokens, D embedding, N hard
negatives of a row.
"""

from collections.abc import Callable
from collections.abc import Mapping
import functools
import inspect

from flax import struct
import jax
import jax.numpy as jnp
from jaxtyping import Array
from jaxtyping import Bool
from jaxtyping import Float

# The score of a candidate that is none; finite, so no difference of two is NaN.
_NEVER = -1e30
DIRECTIONS = ('retriever_lm', 'lm_retriever')


@struct.dataclass
class Masks:
  """What counts.

  Attributes:
    targets: [B, L] bool. Tokens to predict; None where nothing is predicted
      (contrastive).
    candidates: [B, K] bool. False has probability 0 and no gradient.
    positives: [B, K] bool. What contrastive wants found, else None.
  """

  targets: jax.Array | None
  candidates: jax.Array
  positives: jax.Array | None = None


Objective = Callable[[jax.Array, jax.Array | None, Masks], jax.Array]


def _float32(x: jax.Array) -> jax.Array:
  return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def _check(scores: jax.Array, name: str) -> None:
  if scores.shape[1] < 2:
    raise ValueError(
      f'Objective {name!r} got K={scores.shape[1]} candidate a row: its '
      'probability is always 1, so the retriever would learn nothing. Retrieve '
      'at least 2, or give a batch of 1 hard negatives.'
    )


def _log_softmax(
  scores: jax.Array, mask: jax.Array, temperature: float = 1.0
) -> jax.Array:
  """Over the last axis, about -1e30 where the mask is False."""
  scores = _float32(scores) / temperature
  return jax.nn.log_softmax(jnp.where(mask, scores, _NEVER))


def masked_mean(values: jax.Array, mask: jax.Array) -> jax.Array:
  """Over all that the mask allows, 0 if that is nothing."""
  total = jnp.where(mask, values, 0.0).sum()
  return total / jnp.maximum(mask.sum(dtype=total.dtype), 1.0)


def _tokens(masks: Masks) -> jax.Array:
  """[B, L]. What losses by token count."""
  return masks.targets & masks.candidates.any(axis=-1, keepdims=True)


def _rows(masks: Masks) -> jax.Array:
  """[B]. What losses by row count."""
  return _tokens(masks).any(axis=-1)


def _rows_with_positive(masks: Masks) -> jax.Array:
  """[B]. What contrastive counts."""
  return (masks.positives & masks.candidates).any(axis=-1)


def _gold(gold_log_probs: jax.Array, masks: Masks) -> jax.Array:
  """[B, K, L], 0 at what is no target or no candidate, whatever stood there."""
  mask = masks.candidates[:, :, None] & masks.targets[:, None, :]
  return jnp.where(mask, _float32(gold_log_probs), 0.0)


def _mean_gold(gold_log_probs: jax.Array, masks: Masks) -> jax.Array:
  """[B, K] mean over target tokens, without gradient."""
  number = masks.targets.sum(axis=-1, keepdims=True)
  total = _gold(jax.lax.stop_gradient(gold_log_probs), masks).sum(axis=-1)
  return total / jnp.maximum(number, 1)


def _mean_kl(log_p: jax.Array, log_q: jax.Array, masks: Masks) -> jax.Array:
  """KL(p || q): sum over candidates, mean over rows."""
  terms = jnp.exp(log_p) * (log_p - log_q)
  terms = jnp.where(masks.candidates, terms, 0.0)
  return masked_mean(terms.sum(axis=-1), _rows(masks))


def marginal_token(
  scores: Float[Array, 'B K'],
  gold_log_probs: Float[Array, 'B K L'],
  masks: Masks,
) -> Float[Array, '']:
  """Each token marginalised by itself, as REALM's released code does.

  An `Objective`; the mean over the target tokens of the batch.
  """
  _check(scores, 'marginal_token')
  prior = _log_softmax(scores, masks.candidates)
  joint = prior[:, :, None] + _gold(gold_log_probs, masks)
  return -masked_mean(jax.nn.logsumexp(joint, axis=1), _tokens(masks))


def marginal_seq(
  scores: Float[Array, 'B K'],
  gold_log_probs: Float[Array, 'B K L'],
  masks: Masks,
) -> Float[Array, '']:
  """All tokens of a row from one candidate (Guu et al. 2020, eq. 1).

  An `Objective`; its gradient by the scores is -(posterior - prior) / rows.
  """
  _check(scores, 'marginal_seq')
  prior = _log_softmax(scores, masks.candidates)
  joint = prior + _gold(gold_log_probs, masks).sum(axis=-1)
  return -masked_mean(jax.nn.logsumexp(joint, axis=1), _rows(masks))


def emdr2(
  scores: Float[Array, 'B K'],
  gold_log_probs: Float[Array, 'B K L'],
  masks: Masks,
) -> Float[Array, '']:
  """Marginal_token that trains only the retriever (Sachan et al. 2021).

  An `Objective`. The reader is trained beside it, on all candidates at once.
  EMDR2's scores are inner products over sqrt(D).
  """
  _check(scores, 'emdr2')
  return marginal_token(scores, jax.lax.stop_gradient(gold_log_probs), masks)


def pdist(
  scores: Float[Array, 'B K'],
  gold_log_probs: Float[Array, 'B K L'],
  masks: Masks,
  *,
  temperature_score: float = 0.01,
  temperature_gold: float = 0.01,
) -> Float[Array, '']:
  """Perplexity distillation (Izacard et al. 2022, section 2.2).

  KL(softmax(mean_t g / temperature_gold) || softmax(s / temperature_score)), an
  `Objective` that trains only the retriever. Atlas divides inner products by
  sqrt(D) and then by the temperature: the defaults are for scores so divided.
  """
  _check(scores, 'pdist')
  gold = _mean_gold(gold_log_probs, masks)
  reader = _log_softmax(gold, masks.candidates, temperature_gold)
  retriever = _log_softmax(scores, masks.candidates, temperature_score)
  return _mean_kl(reader, retriever, masks)


def loop(
  scores: Float[Array, 'B K'],
  gold_log_probs: Float[Array, 'B K L'],
  masks: Masks,
  *,
  temperature_score: float = 0.01,
  temperature_gold: float = 0.01,
) -> Float[Array, '']:
  """Leave-one-out perplexity distillation (Izacard et al. 2022, section 2.2).

  The worse the answer without a candidate, the more that candidate is worth:
  KL(softmax(-mean_t g / temperature_gold) || softmax(s / temperature_score)). An
  `Objective` that trains only the retriever, but for gold_log_probs[:, k]: the
  answer given all candidates except k, a pass of the reader for each. Scores and
  temperatures as of `pdist`.
  """
  _check(scores, 'loop')
  return pdist(
    scores,
    -gold_log_probs,
    masks,
    temperature_score=temperature_score,
    temperature_gold=temperature_gold,
  )


def replug_lsr(
  scores: Float[Array, 'B K'],
  gold_log_probs: Float[Array, 'B K L'],
  masks: Masks,
  *,
  temperature_score: float = 0.1,
  temperature_gold: float = 0.1,
  direction: str = 'retriever_lm',
) -> Float[Array, '']:
  """Supervision by a language model (Shi et al. 2023, section 4).

  KL(softmax(s / temperature_score) || softmax(mean_t g / temperature_gold)), an
  `Objective` that trains only the retriever. The paper's scores are cosines, and
  so the defaults; its formula has the probability of the answer where its
  released code, as here, has the log-probability.

  Args:
    scores: see `Objective`.
    gold_log_probs: see `Objective`.
    masks: see `Objective`.
    temperature_score: the paper's gamma.
    temperature_gold: the paper's beta.
    direction: 'retriever_lm' as the paper has it, or 'lm_retriever', the other
      divergence, which is pdist's and the released code's.

  Returns:
    See `Objective`.

  Raises:
    ValueError: for an unknown direction.
  """
  _check(scores, 'replug_lsr')
  if direction not in DIRECTIONS:
    raise ValueError(f'Unknown direction {direction!r}; known: {DIRECTIONS}.')
  gold = _mean_gold(gold_log_probs, masks)
  lm = _log_softmax(gold, masks.candidates, temperature_gold)
  retriever = _log_softmax(scores, masks.candidates, temperature_score)
  if direction == 'retriever_lm':
    return _mean_kl(retriever, lm, masks)
  return _mean_kl(lm, retriever, masks)


def contrastive(
  scores: Float[Array, 'B K'],
  gold_log_probs: Float[Array, 'B K L'] | None,
  masks: Masks,
  *,
  temperature: float = 1.0,
) -> Float[Array, '']:
  """Softmax cross-entropy of the positives (Karpukhin et al. 2020, eq. 2).

  An `Objective`, the mean over rows with a positive (`num_without_positive`
  counts the others). Of several positives the probabilities are summed: finding
  any will do, as in ORQA's early loss. ORQA and DPR have no temperature.
  """
  del gold_log_probs
  _check(scores, 'contrastive')
  if masks.positives is None:
    raise ValueError("Objective 'contrastive' needs masks.positives.")
  log_probs = _log_softmax(scores, masks.candidates, temperature)
  found = jnp.where(masks.positives, log_probs, _NEVER)
  return -masked_mean(
    jax.nn.logsumexp(found, axis=-1), _rows_with_positive(masks)
  )


OBJECTIVES: Mapping[str, Objective] = {
  'marginal_token': marginal_token,
  'marginal_seq': marginal_seq,
  'emdr2': emdr2,
  'pdist': pdist,
  'loop': loop,
  'replug_lsr': replug_lsr,
  'contrastive': contrastive,
}
_COUNTED = {
  'marginal_token': _tokens,
  'emdr2': _tokens,
  'contrastive': _rows_with_positive,
}


def get(name: str, **settings: float | str) -> Objective:
  """The objective of a name, its settings bound.

  Args:
    name: one of `OBJECTIVES`.
    **settings: keyword arguments of that function, such as its temperatures.

  Raises:
    ValueError: for an unknown name or setting.
  """
  if name not in OBJECTIVES:
    raise ValueError(
      f'Unknown objective {name!r}; known: {sorted(OBJECTIVES)}.'
    )
  objective = OBJECTIVES[name]
  parameters = inspect.signature(objective).parameters.values()
  known = {p.name for p in parameters if p.kind == p.KEYWORD_ONLY}
  if set(settings) - known:
    raise ValueError(
      f'Objective {name!r} has no setting(s) {sorted(set(settings) - known)}; '
      f'known: {sorted(known)}.'
    )
  return functools.partial(objective, **settings)


def num_terms(name: str, masks: Masks) -> Float[Array, '']:
  """What the objective is a mean over: the weight with which to average batches.

  Args:
    name: one of `OBJECTIVES`.
    masks: what counts.

  Returns:
    [] number of target tokens or of rows.

  Raises:
    ValueError: for an unknown name.
  """
  get(name)
  return _COUNTED.get(name, _rows)(masks).sum(dtype=jnp.float32)


def num_without_positive(masks: Masks) -> Float[Array, '']:
  """Rows with candidates but no positive among them: contrastive leaves them out.

  Where these are many a contrastive loss says little; watch it beside the loss.

  Args:
    masks: candidates and positives.

  Returns:
    [] number of such rows.
  """
  rows = masks.candidates.any(axis=-1) & ~_rows_with_positive(masks)
  return rows.sum(dtype=jnp.float32)


def in_batch_scores(
  queries: Float[Array, 'B D'],
  blocks: Float[Array, 'B D'],
  negatives: Float[Array, 'B N D'] | None = None,
  *,
  row_valid: Bool[Array, ' B'] | None = None,
  negative_valid: Bool[Array, 'B N'] | None = None,
) -> tuple[Float[Array, 'B K'], Masks]:
  """Scores of each query with all blocks of the batch, its own and the others'.

  The batch is the global one: on many devices the blocks of all are gathered.

  Args:
    queries: [B, D].
    blocks: [B, D] the positive of each query.
    negatives: [B, N, D] hard negatives of each, negatives of all.
    row_valid: [B]; False is a row of padding, neither query nor block.
    negative_valid: [B, N]; False is padding.

  Returns:
    [B, B (1 + N)] inner products in float32: first all positives, then row 0's
    negatives and so on; and their masks, for `contrastive`.
  """
  batch = queries.shape[0]
  valid = jnp.ones(batch, bool) if row_valid is None else row_valid
  all_blocks, candidates = blocks, valid
  if negatives is not None:
    rows = negatives.reshape(-1, negatives.shape[-1])
    real = jnp.broadcast_to(valid[:, None], negatives.shape[:2])
    real = real if negative_valid is None else real & negative_valid
    all_blocks = jnp.concatenate([blocks, rows])
    candidates = jnp.concatenate([valid, real.reshape(-1)])
  scores = jnp.einsum(
    'qd,kd->qk', _float32(queries), _float32(all_blocks), precision='highest'
  )
  own = jnp.eye(*scores.shape, dtype=bool)
  candidates = valid[:, None] & candidates[None, :]
  return scores, Masks(None, candidates, own & candidates)
