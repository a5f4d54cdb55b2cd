# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A retriever taught by a language model: how much each candidate helps it predict.

REPLUG's supervision (Shi et al. 2023, sections 3.2 and 4). The neighbors of chunk u
act on the predictions of its last position and of the m - 1 after it (Borgeaud et al.
2022, section 2.4): the loss of chunk u + 1 is what a candidate is measured by. It is
divided by the number of tokens, of which a query has at least m / 2, so that
temperatures do not depend on m.

RETRO reads the candidate of one rank for all chunks of a sequence in one pass: K
candidates take K passes, and earlier chunks read the candidate of the same rank. A
decoder without retrieval reads a candidate as a prefix of the chunk that asks.

Dimension key: B batch, L tokens, C chunks, M chunk length, K candidates, A = K + 1
candidates and none, R neighbor length, Q queries (chunks of a row whose candidates
are embedded), T WordPiece ids.
"""

from collections.abc import Callable, Mapping
from typing import Any

from flax import linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int
import numpy as np

from retrieval.nn import means, objectives
from retro_jax.nn import losses

EMBEDDER, LANGUAGE_MODEL = 'embedder', 'language_model'  # parts of parameters


def following(x: Any, chunk_length: int) -> Any:
  """Cut [..., L] into the positions that each chunk's neighbors act on.

  The result is [..., C - 1, M]: the last chunk's are not all in a row.
  """
  m = chunk_length
  return x[..., m - 1 : -1].reshape(*x.shape[:-1], -1, m)


def targets(batch: Mapping[str, Any], chunk_length: int) -> Any:
  """Mask the predictions that each chunk's neighbors act on: [..., C - 1, M] bool.

  Predictions of another document or without a target are False.
  """
  segments = batch['segment_ids']
  owner = segments[..., chunk_length - 1 :: chunk_length][..., :-1, None]
  same = following(segments, chunk_length) == owner
  return following(batch['loss_mask'], chunk_length) & same & (owner > 0)


def countable(
  batch: Mapping[str, np.ndarray], chunk_length: int
) -> Bool[np.ndarray, '*b C']:
  """Chunks after which at least half a chunk of the same document follows."""
  many = targets(batch, chunk_length).sum(-1) >= (chunk_length + 1) // 2
  last = np.zeros((*many.shape[:-1], 1), bool)
  return np.concatenate([many, last], -1)


def gold_log_probs(
  model: nn.Module, params: Any, batch: Mapping[str, jax.Array]
) -> Float[Array, 'B Q A M']:
  """Log-probabilities of what follows each query, by each candidate alone.

  Args:
    model: a RETRO, or a decoder without retrieval.
    batch: as `losses.batch_nll`; neighbors [B, C, K, R] are the candidates, asked
      [B, Q] the queries' chunks, negative for none.

  Returns:
    Nats of positions that `following` cuts, for RETRO 0 outside of `loss_mask`; the
    last of A is without a candidate.
  """
  neighbors, mask = batch['neighbors'], batch['neighbor_mask']
  asked = jnp.maximum(batch['asked'], 0)
  k, m = neighbors.shape[2], model.config.chunk_length

  def read(rank):
    at = jnp.minimum(rank, k - 1)
    tokens = jax.lax.dynamic_slice_in_dim(neighbors, at, 1, 2)
    there = jax.lax.dynamic_slice_in_dim(mask, at, 1, 2) & (rank < k)
    if model.config.cca_layers:
      return read_neighbors(tokens, there)
    return read_prefix(tokens[:, :, 0], there[:, :, 0])

  def read_neighbors(tokens, there):
    row = {**batch, 'neighbors': tokens, 'neighbor_mask': there}
    nll = losses.batch_nll(model, params, row)
    return jnp.take_along_axis(-following(nll, m), asked[:, :, None], 1)

  def read_prefix(tokens, there):
    of_queries = (
      jnp.take_along_axis(x, asked[:, :, None], 1) for x in (tokens, there)
    )
    row = _prefixed(batch, asked, *of_queries, m)
    nll = losses.batch_nll(model, params, row)
    return -nll[:, -m - 1 : -1].reshape(*asked.shape, m)

  return jnp.moveaxis(jax.lax.map(read, jnp.arange(k + 1)), 0, 2)


def _prefixed(batch, asked, prefix, there, m):
  """Each query's chunk and the next, after its prefix [B, Q, R]: rows of B Q."""
  prefix, there = _right_aligned(prefix, there)
  start = jnp.minimum(asked * m, batch['tokens'].shape[1] - 2 * m)
  span = start[:, :, None] + jnp.arange(2 * m)  # [B, Q, 2 M]
  rows = jnp.arange(len(asked))[:, None, None]
  tokens, targets = batch['tokens'][rows, span], batch['targets'][rows, span]

  def flat(before, text):
    return jnp.concatenate([before, text], -1).reshape(
      -1, before.shape[-1] + 2 * m
    )

  return {
    'tokens': flat(jnp.where(there, prefix, 0), tokens),
    'targets': flat(jnp.zeros_like(prefix), targets),
    'segment_ids': flat(there.astype(jnp.int32), jnp.ones_like(tokens)),
    'loss_mask': flat(jnp.zeros_like(there), jnp.ones(tokens.shape, bool)),
  }


def _right_aligned(
  tokens: Int[Array, '*b R'], mask: Bool[Array, '*b R']
) -> tuple[Int[Array, '*b R'], Bool[Array, '*b R']]:
  """Move the tokens that count, the first ones of a row, to its end."""
  length = tokens.shape[-1]
  count = mask.sum(-1, keepdims=True)
  at = jnp.arange(length) - (length - count)
  return jnp.take_along_axis(tokens, jnp.maximum(at, 0), -1), at >= 0


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
) -> tuple[means.Mean, dict[str, means.Mean]]:
  """Teach the embedder which candidate the language model predicts best with.

  Args:
    encode: (parameters, ids [n, T], lengths [n]) -> vectors [n, d].
    params: EMBEDDER of `encode`, and LANGUAGE_MODEL, which gets no gradient.
    batch: arrays of `candidate_rows.CandidateReader.complete`.
    temperature: of the retriever: scores are inner products divided by it.
    lm_temperature: of the language model's distribution, for its entropy alone.

  Returns:
    The objective's mean in nats, and the metrics of `measure`.
  """
  del key, train
  m = model.config.chunk_length
  frozen = jax.lax.stop_gradient(params[LANGUAGE_MODEL])
  gold = gold_log_probs(model, frozen, batch)
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
) -> dict[str, means.Mean]:
  """Compare a retriever's distribution with what its candidates are worth.

  Returns:
    Means over queries: `entropy` in nats of the retriever's distribution and
    `lm_entropy` of the language model's, the softmax of gains / `lm_temperature`;
    `rank_correlation`, Kendall's tau of scores and gains; `helpful`, the share of
    candidates with a gain; `gain` of the retriever's first candidate, `mean_gain`
    and `best_gain` of all. A gain is nats a token less than without retrieval.
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

  metrics = {
    'entropy': -(jnp.exp(log_p) * log_p).sum(-1),
    'lm_entropy': -(jnp.exp(log_q) * log_q).sum(-1),
    'rank_correlation': by_row(agree, pairs),
    'helpful': by_row(gains > 0, candidates),
    'gain': jnp.take_along_axis(gains, first[:, None], 1)[:, 0],
    'mean_gain': by_row(gains, candidates),
    'best_gain': best,
  }
  return {name: means.of(x, rows) for name, x in metrics.items()}


def _signs(x: jax.Array) -> jax.Array:
  """Signs of the differences of each pair: [Q, K, K]."""
  return jnp.sign(x[:, :, None] - x[:, None, :])
