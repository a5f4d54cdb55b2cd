# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Edits of neighbors: against a slow sum over alignments, proper and causal."""

import collections
import dataclasses

import numpy as np
import pytest

from retro_jax.evaluation import editing

VOCAB, M, K, R = 6, 3, 2, 5
OF = {name: i for i, name in enumerate(editing.OPERATIONS)}


def _weights(seed=1):
  shape = editing.RUNS + 1, len(editing.OPERATIONS)
  found = np.random.default_rng(seed).random(shape)
  return found / found.sum(1, keepdims=True)


def _examples(count=4, seed=0):
  """Random neighbors, some cut, and a model of random probabilities."""
  rng = np.random.default_rng(seed)
  lengths = rng.integers(1, R + 1, (count, K))
  lengths[0, 1] = 0
  return editing.Examples(
    rng.integers(0, VOCAB, (count, K, R)),
    np.arange(R) < lengths[..., None],
    rng.integers(0, VOCAB, (count, 2 * M)),
    rng.uniform(0.5, 3, (count, 2 * M)).astype(np.float32),
    np.ones((count, M), bool),
    np.arange(count),
  )


def _slow(weights, neighbors, token, nats, state):
  """Mass of each (run, neighbor, place) after a token, not normalized."""
  new, total = collections.Counter(), sum(map(len, neighbors))
  for (run, n, place), mass in state.items():
    y, model = neighbors[n], np.exp(-nats)

    def add(name, state, p, run=run, mass=mass):
      new[state] += mass * weights[run, OF[name]] * p

    stay = (0, n, place)
    if place < len(y):
      longer = min(run + 1, editing.RUNS)
      add('copy', (longer, n, place + 1), y[place] == token)
      add('substitute', (0, n, place + 1), model)
    else:
      add('copy', stay, model)
      add('substitute', stay, model)
    for d in range(1, editing.SKIPS + 1):
      if place + d < len(y):
        add(f'skip {d}', (1, n, place + d + 1), y[place + d] == token)
      else:
        add(f'skip {d}', stay, model)
    for other, z in enumerate(neighbors):
      for at, found in enumerate(z):
        add('jump', (1, other, at + 1), (found == token) / total)
    add('insert', stay, model)
  return new


def test_nats_are_the_sum_over_alignments():
  given, weights = _examples(), _weights()
  got = editing.score(weights, given)
  for i in range(len(given)):
    neighbors = [
      y[mask].tolist()
      for y, mask in zip(
        given.neighbors[i], given.neighbor_mask[i], strict=True
      )
    ]
    total = sum(map(len, neighbors))
    state = {
      (0, n, at): 1 / total
      for n, y in enumerate(neighbors)
      for at in range(len(y))
    }
    for t in range(2 * M):
      new = _slow(
        weights, neighbors, given.tokens[i, t], given.nats[i, t], state
      )
      p = sum(new.values())
      if t >= M:
        assert got[i, t - M] == pytest.approx(-np.log(p), abs=1e-4)
      state = {key: mass / p for key, mass in new.items()}


def test_probabilities_of_all_tokens_sum_to_one():
  """Of each next token, after the same text."""
  model = np.random.default_rng(3).dirichlet(np.ones(VOCAB))
  one, last = _examples(6), 2 * M - 1
  total = 0.0
  for token in range(VOCAB):
    tokens, nats = one.tokens.copy(), one.nats.copy()
    tokens[:, last], nats[:, last] = token, -np.log(model[token])
    changed = dataclasses.replace(one, tokens=tokens, nats=nats)
    total = total + np.exp(-editing.score(_weights(), changed)[:, -1])
  np.testing.assert_allclose(total, 1, atol=1e-5)


def test_later_tokens_do_not_matter():
  given, weights = _examples(), _weights()
  tokens = given.tokens.copy()
  tokens[:, M + 1 :] = (tokens[:, M + 1 :] + 1) % VOCAB
  changed = dataclasses.replace(given, tokens=tokens)
  got, other = editing.score(weights, given), editing.score(weights, changed)
  np.testing.assert_array_equal(got[:, 0], other[:, 0])
  assert (got[:, 1:] != other[:, 1:]).any()
  # What is not scored costs nothing and is not read.
  scored = given.scored.copy()
  scored[:, 1] = False
  found = editing.score(weights, dataclasses.replace(given, scored=scored))
  assert not found[:, 1].any()
  np.testing.assert_array_equal(found[:, 0], got[:, 0])


def test_fitted_weights_gain_and_are_of_the_other_documents():
  rng = np.random.default_rng(4)
  given = _examples(40)
  tokens = given.tokens.copy()
  whole = given.neighbor_mask[:, 0].all(1)
  # The second chunk of most goes on where the first one stands in the neighbor.
  tokens[:, 1:] = given.neighbors[:, 0]
  tokens[:, 0] = rng.integers(0, VOCAB, 40)
  given = dataclasses.replace(given, tokens=tokens)
  start, fitted = editing.start_weights(), editing.fit(given, 5)
  np.testing.assert_allclose(fitted.sum(1), 1)
  before, after = (editing.score(w, given).sum() for w in (start, fitted))
  assert after < before - 1 and whole.any()
  assert fitted[-1, OF['copy']] > start[-1, OF['copy']]
  nats, weights = editing.cross_fit(given)
  odd = given.document % 2 == 1
  np.testing.assert_array_equal(weights[0], editing.fit(given.take(odd)))
  np.testing.assert_array_equal(
    nats[~odd], editing.score(weights[0], given.take(~odd))
  )
  changed = dataclasses.replace(
    given, tokens=np.where(odd[:, None], given.tokens, 0)
  )
  np.testing.assert_array_equal(editing.cross_fit(changed)[1][0], weights[0])


def test_examples_of_a_batch():
  """Three chunks: two of one document, the second of which is scored."""
  tokens = np.arange(9)[None]
  mask = np.zeros((1, 3, K, R), bool)
  mask[0, :2, 0] = True
  row = {
    'tokens': tokens,
    'segment_ids': np.array([[1] * 6 + [2] * 3]),
    'loss_mask': np.arange(9)[None] != 5,
    'neighbors': np.arange(3 * K * R).reshape(1, 3, K, R),
    'neighbor_mask': mask,
  }
  nats = 10.0 + np.arange(9)[None]
  scored, owner = np.array([[False, True, True]]), np.array([[7, 7, 8]])
  found = editing.examples(row, nats, scored, owner, M)
  assert len(found) == 1 and found.document.tolist() == [7]
  assert found.tokens.tolist() == [[0, 1, 2, 3, 4, 5]]
  assert found.nats.tolist() == [[8, 10, 11, 12, 13, 14]]
  # Token 3 is predicted in the chunk before, which is scored elsewhere.
  assert found.scored.tolist() == [[False, True, True]]
  np.testing.assert_array_equal(found.neighbors[0], row['neighbors'][0, 0])
  both = editing.Examples.join([found, found])
  assert len(both) == 2 and len(both.take(np.array([1]))) == 1
