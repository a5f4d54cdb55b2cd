# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Retrieve and edit: the nearest neighbor's text, copied with edits.

A baseline after prototype editing (Guu et al. 2018, arXiv 1709.08878; Hashimoto et
al. 2018, arXiv 1812.01194), whose neural editor is here a hidden Markov model of few
weights beside a language model. A neighbor of chunk u, with its continuation, is
aligned with chunk u, then with what has been written of chunk u + 1. The next token
comes of one operation:

  copy        the neighbor's next token
  skip d      its token after d more, d = 1 to SKIPS
  jump        any of its tokens, each as likely
  substitute  a token of the language model, in place of the neighbor's next one
  insert      a token of the language model

An operation that finds no token left inserts one. Its weight depends on how many
tokens were copied in a row just before, up to RUNS. The probability of a token is the
sum over all alignments (the forward algorithm), so those of all tokens sum to 1.

Dimension key: N examples, K neighbors, R neighbor length, S = R + 1 places in a
neighbor, M chunk length, T = 2 M tokens, Q = RUNS + 1 runs, O operations.
"""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int
import numpy as np

from retro_jax.data import pipeline, windows as windows_lib
from retro_jax.evaluation import evaluate

SKIPS = 2
RUNS = 3
OPERATIONS = (
  'copy',
  *(f'skip {d}' for d in range(1, SKIPS + 1)),
  'jump',
  'substitute',
  'insert',
)
_JUMP, _SUBSTITUTE = SKIPS + 1, SKIPS + 2
_BATCH = 64  # examples in one call
_UNKNOWN = 8.0  # nats of a token that nothing predicts
_PSEUDO_COUNT = 0.1  # of each operation, so that none is impossible


@dataclasses.dataclass(frozen=True)
class Examples:
  """Chunks that read neighbors of the chunk before them."""

  neighbors: Int[np.ndarray, 'N K R']
  neighbor_mask: Bool[np.ndarray, 'N K R']
  # of the chunk before, then of the chunk: tokens and the model's nats of each
  tokens: Int[np.ndarray, 'N T']
  nats: Float[np.ndarray, 'N T']
  # tokens of the chunk that are scored here
  scored: Bool[np.ndarray, 'N M']
  document: Int[np.ndarray, ' N']  # row in `windows.Documents`

  def __len__(self) -> int:
    return len(self.document)

  def take(self, chosen: np.ndarray) -> 'Examples':
    """Some of the examples, by numbers or by a mask."""
    return Examples(*(x[chosen] for x in self._arrays()))

  def _arrays(self) -> list[np.ndarray]:
    return [getattr(self, x.name) for x in dataclasses.fields(self)]

  @classmethod
  def join(cls, parts: Sequence['Examples']) -> 'Examples':
    """All examples of several."""
    columns = zip(*(part._arrays() for part in parts), strict=True)
    return cls(*map(np.concatenate, columns))


def examples(
  row: pipeline.Row,
  nats: Float[np.ndarray, 'B L'],
  scored: Bool[np.ndarray, 'B C'],
  owner: Int[np.ndarray, 'B C'],
  chunk_length: int,
) -> Examples:
  """The examples of a batch of nats; `scored` and `owner` are of `windows.Layout`."""
  m = chunk_length
  tokens = np.asarray(row['tokens'])
  batch = len(tokens)
  segments = np.asarray(row['segment_ids']).reshape(batch, -1, m)
  counts = np.asarray(row['loss_mask']) & np.repeat(scored, m, axis=1)
  # Position t predicts token t + 1. Nothing predicts a row's first token: its
  # chunk is only read.
  unknown = np.full((batch, 1), _UNKNOWN)
  by_token = np.concatenate([unknown, nats[:, :-1]], axis=1)
  counts = np.pad(counts[:, :-1], ((0, 0), (1, 0)))
  masks = np.asarray(row['neighbor_mask'])
  rows, chunks = np.nonzero(masks[:, :-1].any((2, 3)))
  # Both chunks are of one document, and something of the second one is scored.
  same = segments[rows, chunks, -1] == segments[rows, chunks + 1, 0]
  by_chunk = counts.reshape(batch, -1, m)[rows, chunks + 1]
  by_chunk &= segments[rows, chunks + 1] == segments[rows, chunks + 1, :1]
  kept = same & by_chunk.any(1)
  rows, chunks = rows[kept], chunks[kept]
  places = chunks[:, None] * m + np.arange(2 * m)
  return Examples(
    np.asarray(row['neighbors'])[rows, chunks],
    masks[rows, chunks],
    tokens[rows[:, None], places],
    by_token[rows[:, None], places].astype(np.float32),
    by_chunk[kept],
    owner[rows, chunks + 1],
  )


def start_weights() -> Float[np.ndarray, 'Q O']:
  """Weights before any fit: few tokens are copied, and then some in a row."""
  found = np.ones((RUNS + 1, len(OPERATIONS)))
  found[:, 0] += 5.0 * np.arange(RUNS + 1)
  found[0, -1] += 200.0
  found[1:, -1] += 4.0
  return found / found.sum(1, keepdims=True)


def _shift(x: Array, d: int = 1) -> Array:
  """Move mass d places on; what would leave the neighbor is dropped."""
  return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(d, 0)])[..., : x.shape[-1]]


def _edit(weights, y, there, state, given):
  """One token: the mass of all states after it, and its nats.

  Args:
    weights: [Q, O].
    y: [N, K, S] tokens of the neighbors.
    there: [N, K, S] bool, where there is a token.
    state: [N, Q, K, S] probability of each run and next place.
    given: token [N], its nats by the model [N], and whether it is read [N].
  """
  token, nats, read = given
  match = there & (y == token[:, None, None])
  mass = jnp.einsum('NQKS,QO->ONKS', state, weights)
  left = mass[-1]  # of what the model writes and leaves the place as it is
  left += jnp.where(there, 0, mass[0] + mass[_SUBSTITUTE])
  written = _shift(jnp.where(there, mass[_SUBSTITUTE], 0))
  begun = jnp.zeros_like(left)  # copied after anything but a copy
  for d in range(1, SKIPS + 1):
    ahead = jnp.pad(there[..., d:], ((0, 0), (0, 0), (0, d)))
    left += jnp.where(ahead, 0, mass[d])
    begun += _shift(mass[d], d) * match
  begun += (mass[_JUMP].sum((1, 2)) / jnp.maximum(there.sum((1, 2)), 1))[
    :, None, None
  ] * match
  written = (written + left) * jnp.exp(-nats)[:, None, None]
  runs = state * weights[:, :1, None] * match[:, None]
  runs = runs.at[:, -2].add(runs[:, -1])[:, :-1]
  runs = runs.at[:, 0].add(begun)
  new = jnp.concatenate([written[:, None], _shift(runs)], axis=1)
  total = new.sum((1, 2, 3))
  new = jnp.where(
    read[:, None, None, None], new / total[:, None, None, None], state
  )
  return new, jnp.where(read, -jnp.log(total), 0.0)


def token_nats(
  weights: Float[Array, 'Q O'],
  neighbors: Int[Array, 'N K R'],
  mask: Bool[Array, 'N K R'],
  tokens: Int[Array, 'N T'],
  nats: Float[Array, 'N T'],
  scored: Bool[Array, 'N M'],
) -> Float[Array, 'N M']:
  """Nats of each scored token of the second chunk, 0 of the others.

  Every example has a token of a neighbor. The alignment with the first chunk is
  taken as given: it has no derivative.
  """
  end = ((0, 0), (0, 0), (0, 1))
  y, there = jnp.pad(neighbors, end), jnp.pad(mask, end)
  m = scored.shape[1]
  start = there / there.sum((1, 2), keepdims=True)
  state = jnp.zeros((len(y), RUNS + 1, *y.shape[1:])).at[:, 0].set(start)
  step = functools.partial(_edit, weights, y, there)
  read = jnp.concatenate([jnp.ones_like(scored), scored], axis=1)
  by_token = jax.tree.map(lambda x: x.T, (tokens, nats, read))
  first, second = (
    jax.tree.map(lambda x, s=s: x[s], by_token)
    for s in (slice(m), slice(m, None))
  )
  state, _ = jax.lax.scan(step, state, first)
  state = jax.lax.stop_gradient(state)
  _, found = jax.lax.scan(step, state, second)
  return found.T


_token_nats = jax.jit(token_nats)
# For weights that are probabilities, weight times derivative is the expected number
# of times that an operation was done.
_derivative = jax.jit(
  jax.grad(lambda weights, *arrays: -token_nats(weights, *arrays).sum())
)


def _batches(given: Examples) -> Iterator[tuple[int, list[np.ndarray]]]:
  """Batches of one size: the number of examples in each, and its arrays."""
  for low in range(0, len(given), _BATCH):
    part = np.arange(low, min(low + _BATCH, len(given)))
    x = given.take(np.resize(part, _BATCH))
    scored = x.scored & (np.arange(_BATCH) < len(part))[:, None]
    yield len(part), [x.neighbors, x.neighbor_mask, x.tokens, x.nats, scored]


def score(
  weights: Float[np.ndarray, 'Q O'], given: Examples
) -> Float[np.ndarray, 'N M']:
  """Nats of each scored token, 0 of the others."""
  found = [
    np.asarray(_token_nats(weights, *arrays), np.float64)[:count]
    for count, arrays in _batches(given)
  ]
  return np.concatenate([np.zeros((0, given.scored.shape[1])), *found])


def fit(given: Examples, num_steps: int = 25) -> Float[np.ndarray, 'Q O']:
  """Fit the weights to examples by expectation maximization."""
  weights = start_weights()
  for _ in range(num_steps):
    counts = np.full(weights.shape, _PSEUDO_COUNT)
    for _, arrays in _batches(given):
      counts += weights * np.asarray(_derivative(weights, *arrays), np.float64)
    weights = counts / counts.sum(1, keepdims=True)
  return weights


def cross_fit(
  given: Examples,
) -> tuple[Float[np.ndarray, 'N M'], list[Float[np.ndarray, 'Q O']]]:
  """Score the documents of even and odd number by weights fitted to the others.

  Returns:
    [N, M] nats as of `score`, and the weights that scored either half.
  """
  nats, found = np.zeros(given.scored.shape), []
  for half in (0, 1):
    own = given.document % 2 == half
    found.append(fit(given.take(~own)))
    nats[own] = score(found[-1], given.take(own))
  return nats, found


def collect(
  token_nats: Callable[[pipeline.Row], np.ndarray],
  reader: pipeline.ChunkReader,
  *,
  max_documents: int = 0,
  **settings: Any,
) -> tuple[evaluate.Evaluation, Examples]:
  """Score documents by the model alone, and collect the examples of editing.

  Args:
    token_nats: row without neighbors -> [B, L] nats of each target.
    reader: its num_neighbors is K.
    max_documents: at most so many, evenly spread; 0 for all.
    **settings: of `evaluate.score_windows`.
  """
  chunks, m = reader.stores.chunks, reader.chunk_length
  documents = windows_lib.find_documents(chunks, max_documents)

  def score_alone(row: pipeline.Row):
    return token_nats(pipeline.without_neighbors(row))

  total, parts = np.zeros(len(documents.index)), []
  for layout, row, found in evaluate.score_windows(
    score_alone, reader, documents, **settings
  ):
    nats = np.asarray(found, np.float64)
    by_chunk = nats.reshape(*layout.scored.shape, m).sum(-1)
    np.add.at(total, layout.owner[layout.scored], by_chunk[layout.scored])
    parts.append(examples(row, nats, layout.scored, layout.owner, m))
  alone = evaluate.of_documents(total, chunks, documents)
  return alone, Examples.join(parts)


def edited(
  alone: evaluate.Evaluation, given: Examples, nats: Float[np.ndarray, 'N M']
) -> evaluate.Evaluation:
  """The evaluation with the nats of the examples in place of the model's."""
  before = given.nats[:, nats.shape[1] :] * given.scored
  change = np.bincount(given.document, (nats - before).sum(1), len(alone.nats))
  return dataclasses.replace(alone, nats=alone.nats + change)
