# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""kNN-LM's arithmetic against slow loops; its keys against the model's own."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retro_jax.data import windows as windows_lib
from retro_jax.evaluation import evaluate, knn_lm
from retro_jax.nn import losses, retro as model
from tests.retro_jax.data import tiny_data
from tests.retro_jax.nn import tiny

V = 7


def _found(n=40, k=9, seed=0):
  """Neighbors of n tokens; some have fewer than k, one has none."""
  rng = np.random.default_rng(seed)
  distances = np.sort(rng.gamma(2, 20, (n, k)), axis=1).astype(np.float32)
  distances[::5, 6:] = np.inf
  distances[3] = np.inf
  values = rng.integers(0, V, (n, k)).astype(np.uint16)
  values[~np.isfinite(distances)] = 0
  return distances, values, rng.integers(0, V, n, np.int32)


def _slow(distances, values, target, temperature, k):
  """p_kNN of one token, term by term."""
  weights = [math.exp(-float(d) / temperature) for d in distances[:k]]
  total = sum(weights)
  hits = [w for w, v in zip(weights, values, strict=False) if v == target]
  return sum(hits) / total if total else 0.0


@pytest.mark.parametrize('temperature', [2.0, 1 / 0.00785])
def test_probabilities_equal_those_of_a_loop(temperature):
  distances, values, targets = _found()
  ks = (1, 4, 9, 2)
  got = knn_lm.log_knn_probability(distances, values, targets, temperature, ks)
  assert got.dtype == np.float64
  for i, k in enumerate(ks):
    want = [
      _slow(*row, temperature, k)
      for row in zip(distances, values, targets, strict=True)
    ]
    np.testing.assert_allclose(np.exp(got[i]), want, rtol=1e-12)
  assert np.isneginf(got[:, 3]).all() and np.isfinite(got).any()


def test_the_mixture_sums_to_one_over_the_vocabulary():
  distances, values, _ = _found()
  distances, values = (np.delete(x, 3, axis=0) for x in (distances, values))
  logits = np.random.default_rng(1).standard_normal((len(values), V))
  log_lm = logits - np.log(np.exp(logits).sum(1, keepdims=True))
  found = np.zeros((2, len(values), V))
  for y in range(V):
    targets = np.full(len(values), y)
    log_knn = knn_lm.log_knn_probability(
      distances, values, targets, 9.0, (3, 9)
    )
    for i in range(2):
      found[i, :, y] = knn_lm.interpolate(log_lm[:, y], log_knn[i], 0.3)
  np.testing.assert_allclose(np.exp(found).sum(-1), 1, rtol=1e-12)
  targets = found[1].argmax(1)
  targets[::2] = 4
  score = knn_lm.token_scorer(
    lambda row: (log_lm[None], np.zeros((1, len(values), 2))),
    lambda keys: (distances[: len(keys)], values[: len(keys)]),
    9.0,
    0.3,
  )
  scored = np.arange(len(values)) < 30
  nats, likeliest = score({'targets': targets[None], 'loss_mask': scored[None]})
  want = -found[1][np.arange(len(values)), targets] * scored
  np.testing.assert_allclose(nats[0], want, rtol=1e-9)
  is_best = (found[1].argmax(1) == targets) | ~scored
  assert likeliest[0].tolist() == is_best.tolist() and not is_best.all()


def test_a_sweep_equals_one_setting_after_another():
  found = _found()
  rng = np.random.default_rng(2)
  nats = rng.gamma(2, 1, 40).astype(np.float32)
  document = np.sort(rng.integers(0, 5, 40))
  grid = knn_lm.Grid((9, 2), (3.0, 50.0), (0.0, 0.2, 0.7))
  got = knn_lm.sweep(nats, found[2], document, *found[:2], grid, 6)
  want = np.zeros((2, 2, 3, 6))
  settings = list(np.ndindex(grid.shape))
  for place, (k, t, w) in enumerate(settings):
    setting = grid.at(place)
    assert setting == (grid.ks[k], grid.temperatures[t], grid.lambdas[w])
    for i in range(40):
      knn = _slow(*(x[i] for x in found), setting[1], setting[0])
      mixed = setting[2] * knn + (1 - setting[2]) * math.exp(-nats[i])
      want[k, t, w, document[i]] -= math.log(mixed)
  np.testing.assert_allclose(got, want, rtol=1e-10)
  alone = np.bincount(document, nats.astype(np.float64), 6)
  np.testing.assert_array_equal(got[:, :, 0], np.broadcast_to(alone, (2, 2, 6)))


@pytest.fixture(scope='module')
def retro():
  """A model, its parameters, and its compiled features."""
  config = tiny.config(
    vocab_size=300,
    chunk_length=tiny_data.M,
    neighbor_length=tiny_data.R,
    num_layers=2,
    cca_layers=(2,),
    encoder_num_layers=1,
  )
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


@pytest.mark.parametrize('k', [0, 2])
def test_every_token_once_with_the_windows_of_the_evaluation(root, retro, k):
  features = retro[2]
  reader = tiny_data.reader(root, 'valid', k=k)
  chunks = reader.stores.chunks
  documents = windows_lib.find_documents(chunks)
  calls = []
  settings = {'sequence_chunks': 4, 'stride_chunks': 1, 'batch_size': 3}
  tokens = knn_lm.read_tokens(
    features, reader, documents, progress=lambda *x: calls.append(x), **settings
  )
  texts = [chunks.tokens.document(int(i)) for i in documents.index]
  want = np.concatenate([text[1:] for text in texts])
  np.testing.assert_array_equal(tokens.targets, want)
  lengths = [len(text) - 1 for text in texts]
  owners = np.repeat(np.arange(len(texts)), lengths)
  np.testing.assert_array_equal(tokens.document, owners)
  measured = evaluate.evaluate(
    lambda row: features(row)[0].reshape(3, 4, -1).sum(-1),
    reader,
    retrieval='on' if k else 'off',
    **settings,
  )
  np.testing.assert_allclose(
    np.bincount(owners, tokens.nats), measured.nats, rtol=1e-5
  )
  assert calls[-1] == (documents.count.sum(),) * 2


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
  with pytest.raises(ValueError, match='70000 do not fit into float16'):
    read(dtype='float16')


@pytest.mark.parametrize(
  ('temperature', 'ks'), [(0.0, (1,)), (1.0, (0,)), (1.0, (1, 99))]
)
def test_settings_out_of_range_are_refused(temperature, ks):
  with pytest.raises(ValueError, match='expected a temperature above 0 and ks'):
    knn_lm.log_knn_probability(*_found(), temperature, ks)


@pytest.mark.parametrize('weight', [-0.1, 1.0])
def test_a_weight_that_is_no_share_is_refused(weight):
  with pytest.raises(ValueError, match='lambda'):
    knn_lm.interpolate(np.zeros(2), np.zeros(2), weight)
