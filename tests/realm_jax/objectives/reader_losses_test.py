# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Losses of retriever and reader against NumPy; what has influence, what none."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from realm_jax.nn import open_qa
from realm_jax.objectives import reader_losses
from retrieval.nn import means
from tests.realm_jax.data import tiny_qa

CONFIG = tiny_qa.config(share_embedders=False)
MODEL = open_qa.OpenQa(CONFIG)
B, C, R, L, W = (getattr(tiny_qa, x) for x in 'BCRLW')


@functools.cache
def _params():
  return tiny_qa.params(CONFIG)


@functools.partial(jax.jit, static_argnums=2)
@functools.partial(jax.value_and_grad, has_aux=True)
def _step(params, batch, weight):
  key = jax.random.key(0)
  found = reader_losses.loss(
    MODEL, params, batch, key, True, early_weight=weight
  )
  return means.values(found)


def _run(batch, early_weight=1.0):
  batch = jax.tree.map(jnp.asarray, batch)
  (value, metrics), grads = _step(_params(), batch, early_weight)
  return float(value), {k: float(v) for k, v in metrics.items()}, grads


def _same(found, expected, atol=1e-6):
  """Losses, metrics and gradients."""
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=atol),
    found,
    expected,
  )


def _size(tree):
  return max(float(np.abs(x).max()) for x in jax.tree.leaves(tree))


def test_a_null_answer_is_right_where_no_span_is():
  batch = tiny_qa.batch()
  batch['reader_correct'][1] = False
  batch['reader_correct'][2, 0, 1, -1] = True  # leaves the row
  batch = jax.tree.map(jnp.asarray, batch)
  joint = jax.random.normal(jax.random.key(0), (B, R, W, L))
  valid = reader_losses.read_blocks(batch)
  joint = reader_losses.add_retriever(valid, jnp.zeros((B, C)), joint)
  found = reader_losses.full_loss(batch, joint, True)
  for b in range(B):
    there = np.asarray(reader_losses.span_candidates(valid, W, L))[b]
    scores = np.asarray(joint[b], np.float64)
    right = scores[there & batch['reader_correct'][b]] if b != 1 else [0.0]
    expected = scipy.special.logsumexp([0.0, *scores[there]])
    expected -= scipy.special.logsumexp(right)
    np.testing.assert_allclose(found[b], expected, rtol=1e-5)


def test_with_a_null_answer_the_reader_learns_alone_and_from_every_question():
  model = open_qa.OpenQa(dataclasses.replace(CONFIG, null_answer=True))
  batch = tiny_qa.batch()
  batch['reader_correct'][:] = batch['beam_has_answer'][:] = False
  batch = jax.tree.map(jnp.asarray, batch)

  @jax.jit
  @jax.value_and_grad
  def step(params):
    found = reader_losses.loss(model, params, batch, jax.random.key(0), False)
    return found[0].value

  value, grads = step(_params())
  read = jax.jit(functools.partial(MODEL.apply, method='read_beam'))
  spans = read({'params': _params()}, batch)
  joint = reader_losses.add_retriever(
    reader_losses.read_blocks(batch), jnp.zeros((B, C)), spans
  )
  expected = reader_losses.full_loss(batch, joint, True).mean()
  np.testing.assert_allclose(value, expected, rtol=1e-5)
  assert _size(grads['reader']) > 1e-3 > _size(grads['query_embedder']) == 0


def test_zero_where_nothing_is_right():
  batch = tiny_qa.batch()
  batch['beam_has_answer'][1] = False
  batch['reader_correct'][1] = False
  value, metrics, _ = _run(batch)
  share = pytest.approx((B - 1) / B)
  assert metrics['beam_has_answer'] == metrics['reader_has_answer'] == share
  without, _, _ = _run(batch | {'row_valid': np.arange(B) != 1})
  np.testing.assert_allclose(value, without * (B - 1) / B, rtol=1e-5)
  # An answer at padding, or in a span that leaves the row, does not count.
  batch['beam_has_answer'][:] = ~batch['beam_valid']
  batch['reader_correct'][:] = False
  batch['reader_correct'][0, -1] = True
  batch['reader_correct'][1:, :, 1, -1] = True
  assert not batch['reader_valid'][0, -1]
  value, metrics, grads = _run(batch)
  assert value == _size(grads) == 0
  assert metrics['beam_has_answer'] == metrics['reader_has_answer'] == 0
  assert metrics['exact_match'] == 0


def test_padding_has_no_influence():
  batch = tiny_qa.batch()
  expected = _run(batch)
  rng = np.random.default_rng(1)
  other = {k: v.copy() for k, v in batch.items()}
  # Padding of the beam, with arbitrary content.
  other['beam_vectors'][~batch['beam_valid']] = np.nan
  other['beam_has_answer'][~batch['beam_valid']] = True
  gone = ~batch['reader_valid']
  assert gone.any() and (~batch['beam_valid']).sum() > 1
  other['reader_ids'][gone] = rng.integers(0, 9, (gone.sum(), L))
  other['reader_correct'][gone] = True
  _same(_run(other), expected)
  # Questions that only fill the batch.
  more = tiny_qa.batch(5)
  alone = []
  for b in range(2):
    alone.append(_run(batch | {'row_valid': np.arange(B) == b}))
  filled = {k: np.concatenate([v[:2], more[k][2:]]) for k, v in other.items()}
  filled['row_valid'][2:] = False
  found = _run(filled)
  mean = jax.tree.map(lambda x, y: (x + y) / 2, *alone)
  _same(found, mean)
  filled['row_valid'][:] = False
  value, metrics, grads = _run(filled)
  assert value == _size(grads) == metrics['full_loss'] == 0


def _losses_apart(batch):
  """Gradients of the early loss and of the other one."""
  names = 'reader_correct', 'beam_has_answer'
  return [_run(batch | {x: np.zeros_like(batch[x])})[2] for x in names]


def test_gradients_of_both_losses():
  batch = tiny_qa.batch()
  early, full = _losses_apart(batch)
  whole, metrics, both = _run(batch)
  weighed, _, _ = _run(batch, early_weight=0.25)
  np.testing.assert_allclose(
    whole - weighed, 0.75 * metrics['early_loss'], rtol=1e-4
  )
  assert _size(early['query_embedder']) > 1e-3
  assert _size(full['query_embedder']) > 1e-3
  assert _size(early['reader']) == 0 < _size(full['reader'])
  _same(jax.tree.map(jnp.add, early, full), both, atol=1e-5)
  assert _size(both['block_embedder']) == 0


def test_blocks_embedded_anew():
  batch = tiny_qa.batch(fresh=True)
  early, full = _losses_apart(batch)
  assert _size(early['block_embedder']) > 1e-3
  assert _size(full['block_embedder']) > 1e-3
  batch = jax.tree.map(jnp.asarray, batch)

  def both(model):
    rows = [batch[f'block_{x}'] for x in ('ids', 'mask', 'types')]
    fresh = model.embed_blocks(*(x.reshape(B * R, -1) for x in rows))
    # As if the index had held them; but no block stays none.
    valid = batch['reader_valid'][..., None]
    vectors = batch['beam_vectors']
    fresh = jnp.where(valid, fresh.reshape(B, R, -1), vectors[:, :R])
    stale = {k: v for k, v in batch.items() if not k.startswith('block_')}
    vectors = vectors.at[:, :R].set(fresh)
    expected = model.beam_scores(stale | {'beam_vectors': vectors})
    return model.beam_scores(batch), expected, model.beam_scores(stale)

  apply = jax.jit(functools.partial(MODEL.apply, method=both))
  found, expected, stale = apply({'params': _params()})
  np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
  assert np.abs(found - stale)[:, :R].max() > 0.1


def test_best_spans_by_the_released_rule():
  """The best block by its best span, the best span by its best block."""
  scores = np.random.default_rng(0).standard_normal((7, R, W, L), np.float32)
  scores[:, :, :, :2] += open_qa.OUTSIDE
  best = jax.jit(reader_losses.best_spans, static_argnums=1)(scores, 4)
  flat = scores.reshape(7, R, -1)
  np.testing.assert_array_equal(best.block[:, 0], flat.max(-1).argmax(-1))
  span = flat.max(axis=1).argmax(axis=-1)
  np.testing.assert_array_equal(best.width[:, 0] - 1, span // L)
  np.testing.assert_array_equal(best.start[:, 0], span % L)
  order = -np.sort(-scores.reshape(7, -1), axis=-1)
  np.testing.assert_array_equal(best.score, order[:, :4])
  rows = np.arange(7)[:, None]
  found = scores[rows, best.block, best.width - 1, best.start]
  np.testing.assert_array_equal(found, best.score)


def test_best_of_equal_spans():
  """Better retrieved, then narrower, then earlier."""
  best = reader_losses.best_spans(jnp.zeros((1, 2, 2, 2)), 8)
  found = jnp.stack([best.block, best.width, best.start], axis=-1)[0]
  expected = [(b, w, s) for b in (0, 1) for w in (1, 2) for s in (0, 1)]
  np.testing.assert_array_equal(found, expected)


def test_no_further_span():
  scores = np.full((1, 2, 2, 3), -1e9, np.float32)
  scores[0, 1, 0] = [open_qa.OUTSIDE + 3, 2.0, 1.0]
  best = reader_losses.best_spans(jnp.asarray(scores), 4)
  np.testing.assert_array_equal(best.block, [[1, 1, -1, -1]])
  np.testing.assert_array_equal(best.start[0, :2], [1, 2])
