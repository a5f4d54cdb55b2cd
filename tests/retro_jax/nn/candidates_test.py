# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the gains of candidates, against slow loops and single candidates."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retrieval.nn import means, objectives
from retro_jax.nn import candidates, losses, retro
from tests.retro_jax.nn import tiny

B, C, K, Q, D, V = 2, 4, 3, 2, 5, 11
GAMMA, BETA = 0.7, 0.4


@pytest.fixture(scope='module')
def config():
  return tiny.config(num_layers=1, cca_layers=(1,), encoder_num_layers=1)


@pytest.fixture(scope='module')
def batch(config):
  """Row 1 begins another document in its third chunk and ends in the fourth."""
  m = config.chunk_length
  tokens, neighbors, mask = tiny.inputs(
    config, batch=B, length=C * m, neighbors=K
  )
  rng = np.random.default_rng(1)
  segments = np.ones((B, C * m), np.int32)
  segments[1, 2 * m :] = 2
  segments[1, -1] = 0
  loss_mask = segments > 0
  loss_mask[1, [2 * m - 1, -2]] = False
  there = rng.random((B, Q, K)) < 0.8
  there[0, 0] = True
  return {
    'tokens': tokens,
    'targets': rng.integers(0, config.vocab_size, tokens.shape, np.int32),
    'loss_mask': loss_mask,
    'segment_ids': segments,
    'neighbors': neighbors,
    'neighbor_mask': mask,
    'asked': np.array([[0, 2], [2, -1]], np.int32),
    'candidate_valid': there,
    'query_ids': rng.integers(0, V, (B, Q, 1), np.int32),
    'query_lengths': np.ones((B, Q), np.int32),
    'candidate_ids': rng.integers(0, V, (B, Q, K, 1), np.int32),
    'candidate_lengths': np.ones((B, Q, K), np.int32),
  }


def _encode(table, ids, lengths):
  del lengths
  return table[ids[:, 0]]


@pytest.fixture(scope='module')
def params(config):
  table = np.random.default_rng(2).standard_normal((V, D), np.float32)
  return {
    candidates.EMBEDDER: jnp.asarray(table),
    candidates.LANGUAGE_MODEL: tiny.params(config),
  }


@pytest.fixture(scope='module')
def gold(config, batch, params):
  """Of all chunks that another one follows."""
  batch = batch | {'asked': np.tile(np.arange(C - 1, dtype=np.int32), (B, 1))}
  function = jax.jit(
    functools.partial(candidates.gold_log_probs, retro.Retro(config))
  )
  return np.asarray(function(params[candidates.LANGUAGE_MODEL], batch))


def _objective(*args):
  """REPLUG's value, with gradients of an objective that trains readers, too."""
  settings = {'temperature_score': 1.0, 'temperature_gold': BETA}
  joint = objectives.get('marginal_token')(*args)
  value = objectives.get('replug_lsr', **settings)(*args)
  return value + joint + -1.0 * jax.lax.stop_gradient(joint)


def test_targets_are_the_positions_that_read_a_chunks_neighbors(config, batch):
  m = config.chunk_length
  found = candidates.targets(batch, m)
  assert found.shape == (B, C - 1, m)
  for row, u, j in itertools.product(range(B), range(C - 1), range(m)):
    position = u * m + m - 1 + j
    segments = batch['segment_ids'][row]
    want = batch['loss_mask'][row, position]
    want &= segments[position] == segments[u * m + m - 1]
    assert found[row, u, j] == want
  countable = candidates.countable(batch, m)
  assert countable.tolist() == [
    [True] * 3 + [False],
    [True, False, True, False],
  ]


def test_a_candidate_is_scored_as_if_it_were_the_only_neighbor(
  config, batch, params, gold
):
  m = config.chunk_length
  score = jax.jit(functools.partial(losses.batch_nll, retro.Retro(config)))
  for k in range(K + 1):
    alone = dict(batch)
    for name in ('neighbors', 'neighbor_mask'):
      alone[name] = batch[name][:, :, k : k + 1]
    if k == K:
      del alone['neighbors'], alone['neighbor_mask']
    nll = np.asarray(score(params[candidates.LANGUAGE_MODEL], alone))
    for u in range(C - 1):
      want = -nll[:, u * m + m - 1 : u * m + 2 * m - 1]
      np.testing.assert_allclose(gold[:, u, k], want, atol=2e-5)
  assert np.abs(gold[:, :, :-1] - gold[:, :, -1:]).max() > 0.05


def _softmax(x):
  x = np.exp(x - x.max())
  return x / x.sum()


def _queries(batch, params, gold):
  """(scores, log-probabilities [K + 1, M'] of targets) of each query that asks."""
  table = np.asarray(params[candidates.EMBEDDER])
  for b, q in itertools.product(range(B), range(Q)):
    u = batch['asked'][b, q]
    if u < 0:
      continue
    there = batch['candidate_valid'][b, q]
    vectors = table[batch['candidate_ids'][b, q, :, 0]]
    scores = vectors @ table[batch['query_ids'][b, q, 0]] / GAMMA
    counted = candidates.targets(batch, gold.shape[-1])[b, u]
    kept = gold[b, u][np.append(there, True)]
    yield scores[there], kept[:, counted]


@pytest.fixture(scope='module')
def found(config, batch, params):
  """Loss, metrics and gradients of REPLUG's objective."""

  def loss(params, batch):
    found = candidates.loss(
      retro.Retro(config),
      _encode,
      _objective,
      params,
      batch,
      jax.random.key(0),
      True,
      temperature=GAMMA,
      lm_temperature=BETA,
    )
    return means.values(found)

  function = jax.jit(jax.value_and_grad(loss, has_aux=True))
  return jax.device_get(function(params, batch))


def test_the_loss_equals_slow_loops(batch, params, gold, found):
  (value, metrics), _ = found
  divergences, gains, entropies, taus = [], [], [], []
  for scores, log_probs in _queries(batch, params, gold):
    p, mean = _softmax(scores), log_probs.mean(-1)
    q, gain = _softmax(mean[:-1] / BETA), mean[:-1] - mean[-1]
    divergences.append((p * np.log(p / q)).sum())
    entropies.append((-(p * np.log(p)).sum(), -(q * np.log(q)).sum()))
    gains.append((gain[scores.argmax()], gain.mean(), gain.max()))
    signs = [
      np.sign((scores[i] - scores[j]) * (gain[i] - gain[j]))
      for i, j in itertools.combinations(range(len(gain)), 2)
    ]
    taus.append(np.mean(signs) if signs else 0.0)
  assert len(divergences) == 3
  np.testing.assert_allclose(value, np.mean(divergences), rtol=1e-4)
  for names, want in (
    (('entropy', 'lm_entropy'), entropies),
    (('gain', 'mean_gain', 'best_gain'), gains),
    (('rank_correlation',), np.array(taus)[:, None]),
  ):
    values = [metrics[name] for name in names]
    np.testing.assert_allclose(values, np.mean(want, 0), atol=1e-4)


def test_the_embedder_learns_and_the_language_model_does_not(found):
  _, grads = found
  assert np.abs(grads[candidates.EMBEDDER]).max() > 1e-3
  for leaf in jax.tree.leaves(grads[candidates.LANGUAGE_MODEL]):
    assert not np.any(leaf)


@pytest.mark.parametrize('kind', [{}, tiny.LLAMA], ids=['paper', 'llama'])
def test_a_decoder_reads_a_candidate_as_a_prefix(kind):
  config = tiny.config(num_layers=1, cca_layers=(), **kind)
  model, m, r = retro.Retro(config), config.chunk_length, config.neighbor_length
  params = tiny.params(config)
  tokens, neighbors, _ = tiny.inputs(
    config, batch=2, length=3 * m, neighbors=2, chunks=3
  )
  kept = np.random.default_rng(0).integers(0, r + 1, (2, 3, 2, 1))
  kept[0, 1, 0] = r
  rng = np.random.default_rng(1)
  batch = {
    'tokens': tokens,
    'targets': rng.integers(0, config.vocab_size, tokens.shape, np.int32),
    'neighbors': neighbors,
    'neighbor_mask': np.arange(r) < kept,
    'asked': np.array([[1, 0], [0, -1]], np.int32),
  }
  found = jax.jit(functools.partial(candidates.gold_log_probs, model))(
    params, batch
  )
  assert found.shape == (2, 2, 3, m)
  score = jax.jit(functools.partial(losses.batch_nll, model))
  for b, q in ((0, 0), (0, 1), (1, 0)):
    u = batch['asked'][b, q]
    span = slice(u * m, u * m + 2 * m)
    for k in range(3):
      prefix = neighbors[b, u, k, : kept[b, u, k, 0]] if k < 2 else []
      # Padding on the right does not act on what stands before it.
      row = np.zeros((1, r + 2 * m), np.int32)
      targets, there = np.zeros_like(row), np.zeros_like(row)
      text = np.r_[prefix, tokens[b, span]]
      row[0, : len(text)], there[0, : len(text)] = text, 1
      targets[0, len(prefix) : len(text)] = batch['targets'][b, span]
      alone = {
        'tokens': row,
        'targets': targets,
        'segment_ids': there,
        'loss_mask': there > 0,
      }
      nll = np.asarray(score(params, alone))[0]
      first = len(prefix) + m - 1
      np.testing.assert_allclose(
        found[b, q, k], -nll[first : first + m], atol=2e-5
      )
