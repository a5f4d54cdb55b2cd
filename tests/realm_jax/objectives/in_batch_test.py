# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""ICT and DPR against numpy: the blocks of a batch are each other's negatives."""

import functools

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from realm_jax.objectives import dpr, ict, in_batch
from retrieval.nn import means

B, N, Q, T, VOCAB = 8, 2, 6, 12, 40
P = 1 + N


class TinyEmbedders(nn.Module):
  """Realm's interface over a bag of tokens."""

  shared: bool = True
  dropout_rate: float = 0.0

  def setup(self):
    init = nn.initializers.normal(1.0)
    self.words = nn.Embed(VOCAB, 8, embedding_init=init)
    if not self.shared:
      self.query_words = nn.Embed(VOCAB, 8, embedding_init=init)
    self.dropout = nn.Dropout(self.dropout_rate)

  def embed_queries(self, ids, mask, *, train=False):
    words = self.words if self.shared else self.query_words
    x = words(ids) * mask[..., None]
    return self.dropout(jnp.tanh(x.sum(axis=1)), deterministic=not train)

  def embed_blocks(self, ids, mask, type_ids, *, train=False):
    x = self.words(ids) * (1 + type_ids[..., None]) * mask[..., None]
    return self.dropout(jnp.tanh(x.sum(axis=1)), deterministic=not train)


def _batch(num_negatives=N):
  rng = np.random.default_rng(0)
  shape = (B, 1 + num_negatives)
  lengths = rng.integers(3, T + 1, (*shape, 1))
  batch = {
    'query_ids': rng.integers(4, VOCAB, (B, Q), np.int32),
    'query_mask': np.arange(Q) < rng.integers(3, Q + 1, (B, 1)),
    'block_ids': rng.integers(4, VOCAB, (*shape, T), np.int32),
    'block_mask': np.arange(T) < lengths,
    'block_types': np.broadcast_to(np.arange(T) > 3, (*shape, T)).astype(
      np.int32
    ),
    'block_hash': np.arange(2 * np.prod(shape), dtype=np.uint32).reshape(
      *shape, 2
    ),
  }
  # Half of the questions have the words of their positives.
  batch['query_ids'][::2] = batch['block_ids'][::2, 0, :Q]
  batch['query_mask'][::2] = True
  batch['block_mask'][::2, 0] = np.arange(T) < Q
  batch['block_types'][::2, 0] = 0
  return jax.tree.map(jnp.asarray, batch)


@functools.cache
def _params(shared=True):
  batch = _batch()

  def both(model):
    model.embed_queries(batch['query_ids'], batch['query_mask'])
    model.embed_blocks(
      *(batch[f'block_{x}'][:, 0] for x in ('ids', 'mask', 'types'))
    )

  init = nn.init(both, TinyEmbedders(shared))
  return nn.unbox(jax.jit(init)(jax.random.key(0))['params'])


def _run(batch, shared=True, loss=dpr.loss, **settings):
  @jax.jit
  @functools.partial(jax.value_and_grad, has_aux=True)
  def step(params):
    model, key = TinyEmbedders(shared), jax.random.key(0)
    return means.values(loss(model, params, batch, key, False, **settings))

  return step(_params(shared))


@functools.partial(jax.jit, static_argnums=2)
def _vectors(params, batch, shared):
  apply = functools.partial(TinyEmbedders(shared).apply, {'params': params})
  queries = apply(
    batch['query_ids'], batch['query_mask'], method='embed_queries'
  )
  blocks = [
    apply(
      *(batch[f'block_{x}'][:, p] for x in ('ids', 'mask', 'types')),
      method='embed_blocks',
    )
    for p in range(batch['block_ids'].shape[1])
  ]
  return queries, jnp.stack(blocks)


def _reference(batch, *, shared=True, valid=None, block_valid=None, mask=True):
  """Loss and metrics in float64, row by row and block by block."""
  queries, blocks = (
    np.asarray(x, float) for x in _vectors(_params(shared), batch, shared)
  )
  hashes = [[tuple(x) for x in row] for row in batch['block_hash'].tolist()]
  width = len(blocks)
  valid = np.ones(B, bool) if valid is None else valid
  if block_valid is None:
    block_valid = np.ones((B, width), bool)
  losses, first, first_hard, ranks = [], [], [], []
  for i in np.flatnonzero(valid):
    scores = {}
    for j in np.flatnonzero(valid):
      for p in range(width):
        own = (i, 0) == (j, p)
        copy = mask and not own and hashes[j][p] == hashes[i][0]
        if own or (block_valid[j, p] and not copy):
          scores[j, p] = queries[i] @ blocks[p, j]
    mine = scores[i, 0]
    losses.append(np.log(sum(np.exp(list(scores.values())))) - mine)
    rank = 1 + sum(s > mine for s in scores.values())
    hard = [s for (j, p), s in scores.items() if j == i and p]
    ranks.append(rank)
    first.append(rank == 1)
    first_hard.append(all(s < mine for s in hard))
  return np.mean(losses), {
    'accuracy': np.mean(first),
    'accuracy_hard': np.mean(first_hard),
    'mean_rank': np.mean(ranks),
  }


def _assert_equal(found, expected):
  value, metrics = found[0]
  assert float(value) == pytest.approx(expected[0], rel=1e-5)
  assert metrics.keys() == expected[1].keys()
  for name, wanted in expected[1].items():
    assert metrics[name].dtype == jnp.float32
    assert float(metrics[name]) == pytest.approx(wanted, rel=1e-5), name


@pytest.mark.parametrize(
  'shared, num_negatives', [(True, 0), (True, 2), (False, 1)]
)
def test_loss_and_metrics(shared, num_negatives):
  batch = _batch(num_negatives)
  expected = _reference(batch, shared=shared)
  found = _run(batch, shared)
  _assert_equal(found, expected)
  assert expected[1]['accuracy'] < 1 < expected[1]['mean_rank']
  assert not shared or expected[1]['accuracy'] > 0
  assert (expected[1]['accuracy_hard'] < 1) == (num_negatives > 0)
  grads = jax.tree.leaves(found[1])
  assert len(grads) == (1 if shared else 2)
  assert all(np.abs(x).max() > 1e-3 for x in grads)


def test_padding_and_missing_negatives_do_not_count():
  batch = _batch()
  valid = np.arange(B) % 4 != 3
  block_valid = np.random.default_rng(1).random((B, P)) < 0.6
  block_valid[:, 0] = True
  expected = _reference(batch, valid=valid, block_valid=block_valid)
  assert expected[0] < _reference(batch, valid=valid)[0]
  masks = {'row_valid': valid, 'block_valid': block_valid}
  _assert_equal(_run(batch | jax.tree.map(jnp.asarray, masks)), expected)


def test_copies_of_a_rows_positive_are_none_of_its_negatives():
  batch = _batch()
  hashes = np.array(batch['block_hash'])
  texts = {k: np.array(batch[k]) for k in ('block_ids', 'block_mask')}
  # The positive of row 0 is that of row 3, too, and a hard negative of row 5.
  for at in ((3, 0), (5, 2)):
    hashes[at] = hashes[0, 0]
    for x in texts.values():
      x[at] = x[0, 0]
  hashes[6, 1, 0] = hashes[0, 0, 0]  # equal in one half only: another block
  changed = batch | {k: jnp.asarray(x) for k, x in texts.items()}
  changed['block_hash'] = jnp.asarray(hashes)
  expected = _reference(changed)
  _assert_equal(_run(changed), expected)
  kept = _reference(changed, mask=False)
  assert kept[0] > expected[0] + 0.01
  value = _run(changed, mask_duplicates=False)[0][0]
  assert float(value) == pytest.approx(kept[0], rel=1e-5)
  del changed['block_hash']
  with pytest.raises(ValueError, match='block_hash'):
    _run(changed)


@pytest.mark.parametrize('num_chunks', [0, 3])
def test_chunks_divide_the_rows(num_chunks):
  with pytest.raises(ValueError, match=f'{num_chunks} chunks'):
    _run(_batch(), num_chunks=num_chunks)


def test_loss_and_metrics_of_ict():
  batch = _batch(0)
  removed = np.arange(B) % 4 < 2
  batch['sentence_removed'] = jnp.asarray(removed)
  loss, metrics = _reference(batch)
  queries, blocks = map(np.asarray, _vectors(_params(), batch, True))
  hits = (queries @ blocks[0].T).argmax(axis=1) == np.arange(B)
  assert metrics['accuracy'] == hits.mean()
  expected = {
    'accuracy': hits.mean(),
    'accuracy_masked': hits[removed].mean(),
    'accuracy_unmasked': hits[~removed].mean(),
    'masked_fraction': 0.5,
  }
  del batch['block_hash']  # as released, copies are not looked for
  _assert_equal(_run(batch, loss=ict.loss), (loss, expected))


def test_query_and_block_have_dropout_of_their_own():
  """With equal texts and one embedder only dropout tells the vectors apart."""
  batch = _batch(0)
  batch |= {f'block_{x}': batch[f'query_{x}'] for x in ('ids', 'mask')}
  batch['block_types'] = jnp.zeros((B, Q), jnp.int32)
  model = TinyEmbedders(dropout_rate=0.1)
  embed = functools.partial(in_batch.embed_pairs, model, _params())
  queries, blocks = embed(True, batch, jax.random.key(0))
  assert ((queries == 0) != (blocks == 0)).any()
  queries, blocks = embed(False, batch, None)
  np.testing.assert_array_equal(queries, blocks)


def _squares(rows, hidden=64):
  """Rows, a matrix, and a loss of all pairs of rows that an encoding gives."""
  rng = np.random.default_rng(0)
  x = rng.standard_normal((rows, 8), np.float32)
  w = rng.standard_normal((8, hidden), np.float32)

  def encode(w, x, key):
    x = x * jax.random.bernoulli(key, 0.5, x.shape)
    return jnp.tanh(jnp.tanh(x @ w) @ w.T)

  def loss(make):
    def value(w):
      y = make(functools.partial(encode, w))
      return jnp.square(y @ y.T).mean()

    return value

  return x, w, loss


def test_chunks_are_encoded_again_with_the_same_dropout():
  """Gradients are those of a loop that holds all it computed."""
  x, w, loss = _squares(8)
  key = jax.random.key(1)

  def loop(encode):
    parts = [encode(x[i::2], jax.random.fold_in(key, i)) for i in range(2)]
    return jnp.stack(parts, axis=1).reshape(x.shape)

  def cached(encode):
    return in_batch.map_chunks(encode, x, num_chunks=2, key=key)

  found, expected = (jax.value_and_grad(loss(f))(w) for f in (cached, loop))
  np.testing.assert_allclose(found[0], expected[0], rtol=2e-5)
  np.testing.assert_allclose(found[1], expected[1], rtol=2e-5, atol=2e-6)


def test_memory_falls_with_chunks():
  x, w, loss = _squares(64, 4096)
  used = []
  for n in (1, 4, 16):
    cached = functools.partial(
      in_batch.map_chunks, batch=x, num_chunks=n, key=jax.random.key(0)
    )
    step = jax.jit(jax.grad(loss(cached))).lower(w).compile()
    used.append(step.memory_analysis().temp_size_in_bytes)
  assert used == sorted(used, reverse=True)
  assert used[-1] < used[0] / 2
