# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""kNN-LM's mixture against slow loops; its keys against the model's own."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retrieval import searchers
from retro_jax.data import windows as windows_lib
from retro_jax.evaluation import knn_lm
from retro_jax.nn import losses, retro as model
from tests.experiments.retro import tiny_retro
from tests.retrieval.searchers import clusters
from tests.retro_jax.data import tiny_data
from tests.retro_jax.nn import tiny

V = 7


def _found(n=40, k=9):
  """Neighbors of n tokens; some have fewer than k, one has none."""
  rng = np.random.default_rng(0)
  distances = np.sort(rng.gamma(2, 20, (n, k)), axis=1).astype(np.float32)
  distances[::5, 6:] = np.inf
  distances[3] = np.inf
  values = rng.integers(0, V, (n, k)).astype(np.uint16)
  values[~np.isfinite(distances)] = 0
  return distances, values, rng.integers(0, V, n, np.int32)


def _oracle(distances, values, target, log_lm, k, temperature, weight):
  """Nats of one token, term by term."""
  weights = [math.exp(-float(d) / temperature) for d in distances[:k]]
  pairs = zip(weights, values, strict=False)
  share = sum(w for w, v in pairs if v == target) / (sum(weights) or 1)
  return -math.log(weight * share + (1 - weight) * math.exp(log_lm))


def test_a_sweep_equals_a_loop():
  distances, values, targets = _found()
  rng = np.random.default_rng(2)
  nats = rng.gamma(2, 1, 40).astype(np.float32)
  document = np.sort(rng.integers(0, 5, 40))
  settings = [
    (k, t, w)
    for k in (9, 2)
    for t in (2.0, 1 / 0.00785)
    for w in (0.0, 0.2, 0.7)
  ]
  got = knn_lm.sweep(nats, targets, document, distances, values, settings, 6)
  want = np.zeros((len(settings), 6))
  for i, setting in enumerate(settings):
    for d, *row in zip(
      document, distances, values, targets, -nats, strict=True
    ):
      want[i, d] += _oracle(*row, *setting)
  np.testing.assert_allclose(got, want, rtol=1e-10)
  alone = np.bincount(document, nats.astype(np.float64), 6)
  for i in range(0, len(settings), 3):  # weight 0
    np.testing.assert_array_equal(got[i], alone)


def test_the_mixture_sums_to_one_and_scores_targets():
  distances, values, targets = (np.delete(x, 3, axis=0) for x in _found())
  logits = np.random.default_rng(1).standard_normal((len(values), V))
  log_lm = logits - np.log(np.exp(logits).sum(1, keepdims=True))
  found = knn_lm.mix(log_lm, distances, values, 9.0, 0.3)
  np.testing.assert_allclose(np.exp(found).sum(1), 1, rtol=1e-12)
  targets[::2] = found[::2].argmax(1)
  score = knn_lm.token_scorer(
    lambda row: (log_lm[None], np.zeros((1, len(values), 2))),
    lambda keys: (distances[: len(keys)], values[: len(keys)]),
    9.0,
    0.3,
  )
  scored = np.arange(len(values)) < 30
  nats, likeliest = score({'targets': targets[None], 'loss_mask': scored[None]})
  rows = zip(distances, values, targets, log_lm, strict=True)
  want = [_oracle(d, v, y, lm[y], 9, 9.0, 0.3) for d, v, y, lm in rows]
  np.testing.assert_allclose(nats[0], want * scored, rtol=1e-9)
  is_best = (found.argmax(1) == targets) | ~scored
  assert likeliest[0].tolist() == is_best.tolist() and not is_best.all()


@pytest.mark.parametrize(
  'kind', ['exact', pytest.param('scann', marks=clusters.NEEDS_SCANN)]
)
def test_distances_are_exact_whatever_the_index_is(kind):
  keys = clusters.clustered().astype(np.float16)
  values = np.arange(len(keys)) % 50
  queries = np.random.default_rng(5).standard_normal((30, 16), np.float32)
  searcher = searchers.ExactSearcher(keys, 'squared_l2')
  if kind == 'scann':
    config = searchers.ScannConfig(rescore='int8', num_leaves_to_search=70)
    searcher = searchers.ScannSearcher.build(keys, 'squared_l2', config)
  ids, rough = searcher.search(queries, 50)
  found, of_found = knn_lm.find_neighbors(searcher, keys, values, queries, 50)
  want = keys[ids].astype(np.float64) - queries[:, None]
  want = (want**2).sum(-1)
  order = np.argsort(want, axis=1, kind='stable')
  np.testing.assert_allclose(
    found, np.take_along_axis(want, order, 1), rtol=1e-6
  )
  np.testing.assert_array_equal(
    of_found, np.take_along_axis(values[ids], order, 1)
  )
  assert (np.abs(-rough - want).max() > 1e-3) == (kind == 'scann')


def test_fewer_keys_than_neighbors():
  keys, values = np.eye(3, dtype=np.float16), np.array([4, 5, 6])
  exact = searchers.ExactSearcher(keys, 'squared_l2')
  found = knn_lm.find_neighbors(exact, keys, values, keys[:1] * 1.0, 5)
  np.testing.assert_array_equal(found[0], [[0, 2, 2, np.inf, np.inf]])
  np.testing.assert_array_equal(found[1], [[4, 5, 6, 0, 0]])


@pytest.fixture(scope='module')
def retro():
  """A model, its parameters, and its compiled features."""
  config = tiny_retro.sizes(2, baseline=False)
  retro = model.Retro(config)
  params = jax.tree.map(jnp.asarray, tiny.params(config))
  features = jax.jit(functools.partial(knn_lm.token_features, retro, params))
  return retro, params, features


def _row(reader, documents, d, length):
  ids = np.full(length, -1)
  count = documents.count[d]
  ids[:count] = documents.first[d] + np.arange(count)
  return {name: x[None] for name, x in reader.read(ids).items()}


def test_keys_are_what_the_last_feed_forward_reads(root, retro):
  module, params, features = retro
  reader = tiny_data.reader(root, 'test')
  row = _row(reader, windows_lib.find_documents(reader.stores.chunks), 1, 8)
  nats, keys = features(row)

  @jax.jit
  def look(row):
    return module.apply(
      {'params': params},
      *(row[name] for name in ('tokens', 'neighbors', 'neighbor_mask')),
      segment_ids=row['segment_ids'],
      capture_intermediates=lambda m, _: m.path == ('layer_2_ffw', 'norm'),
      mutable=['intermediates'],
    )[1]['intermediates']['layer_2_ffw']['norm']['__call__'][0]

  np.testing.assert_allclose(keys, look(row), rtol=1e-5, atol=1e-6)
  want = jax.jit(functools.partial(losses.batch_nll, module, params))(row)
  np.testing.assert_allclose(nats, want, rtol=1e-5, atol=1e-6)


def test_keys_stand_beside_their_next_tokens(root, retro):
  """Packed rows against one pass over each document, in float16."""
  features = retro[2]
  reader = tiny_data.reader(root, 'valid')
  documents = windows_lib.find_documents(reader.stores.chunks)
  longest = int(documents.count.max())
  tokens = knn_lm.read_tokens(
    features,
    reader,
    documents,
    sequence_chunks=longest,
    batch_size=2,
    dtype='float16',
  )
  assert tokens.keys.dtype == np.float16
  for d in range(len(documents.index)):
    row = _row(reader, documents, d, longest)
    _, keys = features(row)
    mask, mine = row['loss_mask'], tokens.document == d
    np.testing.assert_array_equal(tokens.targets[mine], row['targets'][mask])
    np.testing.assert_allclose(
      tokens.keys[mine], np.asarray(keys)[mask], rtol=2e-3, atol=2e-3
    )


def test_keys_too_large_are_refused(root):
  reader = tiny_data.reader(root, 'valid', k=0)

  def features(row):
    shape = row['tokens'].shape
    return np.zeros(shape), np.full((*shape, 3), 7e4, np.float32)

  documents = windows_lib.find_documents(reader.stores.chunks)
  read = functools.partial(
    knn_lm.read_tokens, features, reader, documents, sequence_chunks=4
  )
  assert (read().keys == 7e4).all()
  with pytest.raises(ValueError, match='float16'):
    read(dtype='float16')
