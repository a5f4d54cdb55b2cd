# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A retriever taught by a language model: how much each candidate helps it predict.

REPLUG's supervision (Shi et al. 2023, section 4). RETRO reads one candidate of each
chunk at a time; a decoder without retrieval reads it as a prefix, see `prefixes`.
The neighbors of chunk u act on the predictions of its last position and of the m - 1
after it (Borgeaud et al. 2022, section 2.4): the loss of chunk u + 1 is what a
candidate is measured by. It is divided by the number of tokens, of which a query has
at least m / 2, so that temperatures do not depend on m. A pass over a sequence reads
the candidate of one rank for all of its chunks: K candidates take K passes, and
earlier chunks read the candidate of the same rank.

Dimension key: B batch, L tokens, C chunks, M chunk length, K candidates, A = K + 1
candidates and none, R neighbor length, Q queries (chunks of a row whose candidates
are embedded), T WordPiece ids.
"""

from collections.abc import Callable, Mapping
from typing import Any

from flax import linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float
import numpy as np

from retrieval.nn import objectives
from retro_jax.nn import losses, prefixes

EMBEDDER, LANGUAGE_MODEL = 'embedder', 'language_model'  # parts of parameters


def following(x: Any, chunk_length: int) -> Any:
  """Cut [..., L] into the positions that each chunk's neighbors act on.

  Returns:
    [..., C - 1, M] of a NumPy or JAX array; a row ends before it holds all of them
    for its last chunk.
  """
  m = chunk_length
  return x[..., m - 1 : -1].reshape(*x.shape[:-1], -1, m)


def targets(batch: Mapping[str, Any], chunk_length: int) -> Any:
  """Which predictions each chunk's neighbors act on: [..., C - 1, M] bool.

  Those of another document, and those without a target, do not count.
  """
  segments = batch['segment_ids']
  own = segments[..., chunk_length - 1 :: chunk_length][..., :-1, None]
  same = following(segments, chunk_length) == own
  return following(batch['loss_mask'], chunk_length) & same & (own > 0)


def countable(
  batch: Mapping[str, np.ndarray], chunk_length: int
) -> Bool[np.ndarray, '*b C']:
  """Chunks after which at least half a chunk of the same document follows."""
  found = targets(batch, chunk_length).sum(-1) >= (chunk_length + 1) // 2
  last = np.zeros((*found.shape[:-1], 1), bool)
  return np.concatenate([found, last], -1)


def gold_log_probs(
  model: nn.Module, params: Any, batch: Mapping[str, jax.Array]
) -> Float[Array, 'B Q A M']:
  """Log-probabilities of what follows each query, by each candidate alone.

  Args:
    model: a RETRO.
    batch: as `losses.batch_nll`; neighbors [B, C, K, R] are the candidates, asked
      [B, Q] the queries' chunks, negative for none.

  Returns:
    Nats, 0 outside of `loss_mask`; the last of A is without retrieval.
  """
  neighbors, mask = batch['neighbors'], batch['neighbor_mask']
  asked = jnp.maximum(batch['asked'], 0)[:, :, None]
  k = neighbors.shape[2]

  def read(rank):
    at = jnp.minimum(rank, k - 1)
    one = {
      'neighbors': jax.lax.dynamic_slice_in_dim(neighbors, at, 1, 2),
      'neighbor_mask': jax.lax.dynamic_slice_in_dim(mask, at, 1, 2)
      & (rank < k),
    }
    nll = losses.batch_nll(model, params, {**batch, **one})
    found = -following(nll, model.config.chunk_length)
    return jnp.take_along_axis(found, asked, 1)

  return jnp.moveaxis(jax.lax.map(read, jnp.arange(k + 1)), 0, 2)


def loss(
  model: nn.Module,
  encode: Callable[[Any, jax.Array, jax.Array], jax.Array],
  objective: objectives.Objective,
  params: Any,
  batch: Mapping[str, jax.Array],
  key: jax.Array,
  train: bool,
  *,
  temperature: float,
  lm_temperature: float,
) -> tuple[Float[Array, ''], dict[str, Float[Array, '']]]:
  """Teach the embedder which candidate the language model predicts best with.

  Args:
    encode: (parameters, ids [n, T], lengths [n]) -> vectors [n, d].
    params: EMBEDDER of `encode`, and LANGUAGE_MODEL, which gets no gradient.
    batch: arrays of `candidate_rows.CandidateReader.complete`.
    temperature: of the retriever: scores are inner products divided by it.
    lm_temperature: of the language model's distribution, for its entropy alone.

  Returns:
    The objective's mean over queries in nats, and the metrics of `measure`.
  """
  del key, train
  m = model.config.chunk_length
  frozen = jax.lax.stop_gradient(params[LANGUAGE_MODEL])
  reads = gold_log_probs if model.config.cca_layers else prefixes.gold_log_probs
  gold = reads(model, frozen, batch)
  asked = batch['asked'][:, :, None]
  predicted = jnp.take_along_axis(targets(batch, m), jnp.maximum(asked, 0), 1)
  predicted &= asked >= 0

  def embed(name):
    ids, lengths = batch[f'{name}_ids'], batch[f'{name}_lengths']
    flat = ids.reshape(-1, ids.shape[-1]), lengths.reshape(-1)
    return encode(params[EMBEDDER], *flat).reshape(*lengths.shape, -1)

  scores = jnp.einsum('bqd,bqkd->bqk', embed('query'), embed('candidate'))
  scores = scores / temperature
  gold, predicted, scores, there = (
    x.reshape(-1, *x.shape[2:])
    for x in (gold, predicted, scores, batch['candidate_valid'])
  )
  masks = objectives.Masks(predicted, there)
  value = objective(scores, gold[:, :-1], masks)
  return value, measure(
    jax.lax.stop_gradient(scores), gold, masks, lm_temperature
  )


def measure(
  scores: Float[Array, 'Q K'],
  gold: Float[Array, 'Q A M'],
  masks: objectives.Masks,
  lm_temperature: float = 1.0,
) -> dict[str, Float[Array, '']]:
  """Compare a retriever's distribution with what its candidates are worth.

  Returns:
    Means over queries: `entropy` in nats of the retriever's distribution and
    `lm_entropy` of the language model's, the softmax of gains / `lm_temperature`;
    `rank_correlation`, Kendall's tau of scores and gains; `helpful`, the share of
    candidates with a gain; `gain` of the retriever's first candidate, `mean_gain`
    and `best_gain` of all. A gain is nats a token less than without retrieval.
    `weight` is the number of queries.
  """
  candidates = masks.candidates
  number = masks.targets.sum(-1, keepdims=True)
  rows = (number[:, 0] > 0) & candidates.any(-1)
  total = jnp.where(masks.targets[:, None], gold, 0.0).sum(-1)
  mean = total / jnp.maximum(number, 1)
  gains = mean[:, :-1] - mean[:, -1:]
  log_p = objectives.log_softmax(scores, candidates)
  log_q = objectives.log_softmax(gains, candidates, lm_temperature)
  pairs = candidates[:, :, None] & candidates[:, None, :]
  pairs &= ~jnp.eye(scores.shape[1], dtype=bool)
  agree = _signs(scores) * _signs(gains)
  first = jnp.where(candidates, scores, objectives.NEVER).argmax(-1)
  best = jnp.where(candidates, gains, objectives.NEVER).max(-1)

  def by_row(values, mask):
    number = mask.reshape(len(mask), -1).sum(-1)
    values = jnp.where(mask, values, 0.0).reshape(len(mask), -1).sum(-1)
    return values / jnp.maximum(number, 1)

  found = {
    'entropy': -(jnp.exp(log_p) * log_p).sum(-1),
    'lm_entropy': -(jnp.exp(log_q) * log_q).sum(-1),
    'rank_correlation': by_row(agree, pairs),
    'helpful': by_row(gains > 0, candidates),
    'gain': jnp.take_along_axis(gains, first[:, None], 1)[:, 0],
    'mean_gain': by_row(gains, candidates),
    'best_gain': best,
  }
  metrics = {k: objectives.masked_mean(x, rows) for k, x in found.items()}
  return metrics | {'weight': rows.sum(dtype=jnp.float32)}


def _signs(x: jax.Array) -> jax.Array:
  """Signs of the differences of each pair: [Q, K, K]."""
  return jnp.sign(x[:, :, None] - x[:, None, :])
