# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Estimates of REALM's marginal likelihood from a few documents.

Guu et al. 2020, section 3.3, sum p(y | x, z) p(z | x) over the k best documents
in place of all, or other documents in place of the best:

  top      the k documents with the highest scores, as REALM trains
  uniform  k documents at random
  prior    k draws from p(z | x)
  mixed    the k / 2 best documents, and k / 2 random ones that represent the rest

Each also has the null document. An estimate is the loss of a softmax over its
documents, whose scores get a log-weight: the number of documents that one stands
for. Gradients are by the scores; that of a block's vector is the query vector
times it, that of the query vector the sum of the blocks' vectors times theirs.

Dimension key: N documents, the null document first; k candidates, T targets
(tokens, or 1: all tokens of y together, the paper's eq. 1).
"""

from collections.abc import Callable
import dataclasses
from typing import Any

from jaxtyping import Float, Float64, Int
import numpy as np
from scipy import special

Scores = Float[np.ndarray, ' N']
Gold = Float[np.ndarray, 'N T']  # log p(y_t | x, z) in nats


@dataclasses.dataclass(frozen=True)
class Candidates:
  """Documents of an estimate."""

  ids: Int[np.ndarray, ' k']  # a document may be drawn more than once
  log_weights: Float[np.ndarray, ' k']  # added to the scores


def estimate(
  scores: Scores, gold: Gold, candidates: Candidates
) -> tuple[float, Float64[np.ndarray, ' N']]:
  """Loss -sum_t log sum_z p(z | x) p(y_t | x, z) in nats, and its gradient."""
  ids = candidates.ids
  values = scores[ids].astype(np.float64) + candidates.log_weights
  joint = values[:, None] + gold[ids].astype(np.float64)
  loss = special.logsumexp(values) - special.logsumexp(joint, axis=0)
  prior, posterior = special.softmax(values), special.softmax(joint, axis=0)
  by_candidate = gold.shape[1] * prior - posterior.sum(axis=1)
  gradient = np.bincount(ids, by_candidate, minlength=len(scores))
  return float(loss.sum()), gradient


def top(scores: Scores, k: int, rng: np.random.Generator) -> Candidates:
  """Return the null document and the k best of the others."""
  del rng
  return _with_null(_best(scores)[:k])


def uniform(scores: Scores, k: int, rng: np.random.Generator) -> Candidates:
  """Return the null document and k others at random."""
  return _with_null(1 + rng.permutation(len(scores) - 1)[:k])


def prior(scores: Scores, k: int, rng: np.random.Generator) -> Candidates:
  """Return the null document and k draws from the softmax of the others."""
  others = scores[1:].astype(np.float64)
  drawn = 1 + rng.choice(len(others), size=k, p=special.softmax(others))
  # Each draw has the same share of the others' probability.
  share = special.logsumexp(others) - np.log(k)
  return _with_null(drawn, share - scores[drawn])


def mixed(scores: Scores, k: int, rng: np.random.Generator) -> Candidates:
  """Return the null document, the k / 2 best, and a sample of the rest."""
  order = _best(scores)
  half = k // 2 if k < len(order) else len(order)
  best, rest = order[:half], order[half:]
  drawn = rng.choice(rest, size=min(k - half, len(rest)), replace=False)
  weights = np.zeros(half + len(drawn))
  if len(drawn):
    weights[half:] = np.log(len(rest) / len(drawn))
  return _with_null(np.concatenate([best, drawn]), weights)


ESTIMATORS: dict[
  str, Callable[[Scores, int, np.random.Generator], Candidates]
] = {'top': top, 'uniform': uniform, 'prior': prior, 'mixed': mixed}


def _best(scores: Scores) -> np.ndarray:
  """Documents but the null document, best first; ties go to the lower id."""
  return 1 + np.argsort(-scores[1:], kind='stable')


def _with_null(ids: np.ndarray, log_weights: Any = 0.0) -> Candidates:
  log_weights = np.broadcast_to(log_weights, len(ids))
  return Candidates(np.append(0, ids), np.append(0.0, log_weights))
