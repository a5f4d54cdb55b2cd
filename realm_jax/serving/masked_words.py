# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Predictions of REALM, and the effect of each document on them.

Guu et al. 2020, sections 3.1 and 3.4 (retrieval utility) and Table 3.

Dimension key: B queries, K candidates (the null document first), M masked
positions, V vocabulary.
"""

import collections
from collections.abc import Iterable, Mapping
import functools
from typing import Any

from flax import struct
import jax
from jax import numpy as jnp
import numpy as np

from realm_jax.nn import realm as model_lib
from realm_jax.objectives import losses

_Array = jax.Array | np.ndarray  # computed, or fetched from the device


@struct.dataclass
class Prediction:
  """Predictions for a batch; log-probabilities in nats."""

  log_prior: _Array  # [B, K] float32. log p(z | x).
  # [B, K] float32. log p(z | x, y), y all targets together.
  log_posterior: _Array
  gold: _Array  # [B, K, M] float32. log p(y_m | z, x) of the targets.
  # [B, M] float32. log p(y_m | x); 0 where there is no target.
  marginal_gold: _Array
  # [B, K] float32. RU(z | x) = log p(y | z, x) - log p(y | null, x), equation
  # 2.
  utility: _Array
  without: _Array  # [B, K, M] float32. log p(y_m | x) without a candidate.
  # [B, M, n] int32. The most probable tokens under the marginal.
  tokens: _Array
  token_log_probs: _Array  # [B, M, n] float32. Their log-probabilities.
  # [B, K, M] int32. The most probable token with each candidate alone.
  candidate_tokens: _Array


@functools.partial(jax.jit, static_argnames=('model', 'num_tokens'))
def predict(
  model: model_lib.Realm,
  params: Any,
  batch: Mapping[str, jax.Array],
  num_tokens: int = 1,
) -> Prediction:
  """Predict the num_tokens most probable tokens of each mask."""
  run = functools.partial(model.apply, {'params': params}, batch)
  scores = run(method='relevance_scores')
  log_probs = jax.nn.log_softmax(run(method='token_logits'))
  masks = losses.batch_masks(batch)
  targets = batch['mlm_targets'][:, None, :, None]
  targets = jnp.broadcast_to(targets, (*log_probs.shape[:3], 1))
  gold = jnp.take_along_axis(log_probs, targets, axis=-1)[..., 0]
  best, tokens = jax.lax.top_k(
    losses.marginal_log_probs(scores, log_probs, masks.candidates), num_tokens
  )
  return Prediction(
    log_prior=losses.log_prior(scores, masks.candidates),
    log_posterior=losses.log_posterior(scores, gold, masks),
    gold=gold,
    marginal_gold=losses.token_log_likelihood(scores, gold, masks),
    utility=losses.candidate_utility(gold, masks),
    without=losses.leave_one_out(scores, gold, masks),
    tokens=tokens,
    token_log_probs=best,
    candidate_tokens=log_probs.argmax(axis=-1).astype(jnp.int32),
  )


def measure(
  model: model_lib.Realm, params: Any, batches: Iterable[Mapping[str, Any]]
) -> dict[str, float]:
  """Measure a model on batches of `pipeline.make_dataset`.

  Returns:
    log_prob, accuracy and exact_span of the marginal; the same with the null
    document only (null_*); retrieval_utility, the mean of marginal minus null
    over target tokens; best_utility, the mean utility of the best candidate of
    a query; null_prior, the mean p(null | x); examples.

  Raises:
    ValueError: when no batch has a target.
  """
  values = collections.defaultdict(list)
  for batch in batches:
    out = jax.device_get(predict(model, params, dict(batch)))
    mask, targets = batch['mlm_mask'], batch['mlm_targets']
    rows = mask.any(axis=1)
    null_gold = out.gold[:, 0]
    for name, tokens, gold in (
      ('', out.tokens[..., 0], out.marginal_gold),
      ('null_', out.candidate_tokens[:, 0], null_gold),
    ):
      right = tokens == targets
      values[f'{name}log_prob'].append(gold[mask])
      values[f'{name}accuracy'].append(right[mask])
      values[f'{name}exact_span'].append((right | ~mask).all(axis=1)[rows])
    values['retrieval_utility'].append((out.marginal_gold - null_gold)[mask])
    values['best_utility'].append(out.utility.max(axis=1)[rows])
    values['null_prior'].append(np.exp(out.log_prior[:, 0])[rows])
  found = {name: np.concatenate(x) for name, x in values.items()}
  if not found or not found['null_prior'].size:
    raise ValueError('Nothing to measure: there is no batch with a target.')
  means = {name: float(x.mean(dtype=np.float64)) for name, x in found.items()}
  return means | {'examples': float(found['null_prior'].size)}
