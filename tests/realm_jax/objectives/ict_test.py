# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""ICT's loss against numpy, over chunks and devices; its rows against loops."""

import dataclasses
import functools
import json
import types

from flax import linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
import numpy as np
import pytest

from realm_jax.data import examples
from realm_jax.nn import realm as model_lib
from realm_jax.objectives import ict
from retrieval.nn import means, sharding
from retrieval.text import (
  blocks as blocks_lib,
  corpus as corpus_lib,
  tokens as tokens_lib,
)

B, Q, T, VOCAB = 16, 6, 12, 40
LAYOUT = examples.Layout(
  query_length=Q, block_length=T, cls_id=1, sep_id=2, mask_id=3
)


class TinyEmbedders(nn.Module):
  """Realm's interface over a bag of tokens, quick to compile."""

  config = types.SimpleNamespace(score_scale=0.5)

  def setup(self):
    self.words = nn.Embed(VOCAB, 8, embedding_init=nn.initializers.normal(1.0))
    self.dense = nn.Dense(8)
    self.dropout = nn.Dropout(0.1)

  def embed_queries(self, ids, mask, *, train=False):
    return self.embed_blocks(ids, mask, jnp.zeros_like(ids), train=train)

  def embed_blocks(self, ids, mask, type_ids, *, train=False):
    x = self.words(ids) * (1 + type_ids[..., None]) * mask[..., None]
    x = jnp.tanh(self.dense(x.mean(axis=1)))
    return self.dropout(x, deterministic=not train)


def _batch(seed=0):
  rng = np.random.default_rng(seed)
  batch = {'sentence_removed': rng.random(B) < 0.7}
  for name, length in (('query', Q), ('block', T)):
    batch[f'{name}_ids'] = rng.integers(4, VOCAB, (B, length), np.int32)
    lengths = rng.integers(3, length + 1, (B, 1))
    batch[f'{name}_mask'] = np.arange(length) < lengths
  batch['block_types'] = (np.arange(T) > np.full((B, 1), 3)).astype(np.int32)
  return jax.tree.map(jnp.asarray, batch)


def _init(model):
  batch = _batch()

  def both(model):
    model.embed_queries(batch['query_ids'], batch['query_mask'])
    model.embed_blocks(*(batch[f'block_{x}'] for x in ('ids', 'mask', 'types')))

  init = jax.jit(nn.init(both, model))
  return nn.unbox(init(jax.random.key(0))['params'])


@functools.cache
def _params():
  return _init(TinyEmbedders())


def _step(**settings):
  loss = functools.partial(ict.loss, TinyEmbedders(), **settings)
  step = jax.value_and_grad(lambda *x: means.values(loss(*x)), has_aux=True)
  return jax.jit(step, static_argnums=3)


@functools.cache
def _plain():
  return _step()(_params(), _batch(), jax.random.key(0), False)


def _reference(batch):
  """Loss and metrics in float64, from the model's own vectors."""
  params = _params()

  @jax.jit
  def vectors(batch):
    arrays = [batch[f'block_{x}'] for x in ('ids', 'mask', 'types')]
    apply = functools.partial(TinyEmbedders().apply, {'params': params})
    return (
      apply(batch['query_ids'], batch['query_mask'], method='embed_queries'),
      apply(*arrays, method='embed_blocks'),
    )

  queries, blocks = (np.asarray(x, np.float64) for x in vectors(batch))
  scores = 0.5 * queries @ blocks.T
  losses = np.log(np.exp(scores).sum(axis=1)) - scores.diagonal()
  hits = scores.argmax(axis=1) == np.arange(B)
  removed = np.asarray(batch['sentence_removed'])
  return losses.mean(), {
    'accuracy': hits.mean(),
    'accuracy_masked': hits[removed].mean(),
    'accuracy_unmasked': hits[~removed].mean(),
    'masked_fraction': removed.mean(),
  }


def _assert_metrics(metrics, expected):
  assert metrics.keys() == expected.keys()
  for name, value in expected.items():
    assert metrics[name].dtype == jnp.float32
    assert float(metrics[name]) == pytest.approx(value, rel=1e-5), name


def _assert_same(found, expected, rtol=2e-5, atol=2e-6):
  pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
  for a, b in pairs:
    np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


def test_loss_and_metrics():
  loss, metrics = _reference(_batch())
  (value, found), grads = _plain()
  assert float(value) == pytest.approx(loss, rel=1e-5)
  _assert_metrics(found, metrics)
  assert 0 < metrics['accuracy'] < 1
  assert any(np.abs(x).max() > 1e-3 for x in jax.tree.leaves(grads))


@pytest.mark.parametrize('num_chunks', [1, 2])
def test_eight_devices_have_the_global_batchs_negatives(num_chunks):
  mesh = sharding.make_mesh(4, 2)
  rows = NamedSharding(mesh, P(('data', 'fsdp')))
  with jax.set_mesh(mesh), nn.logical_axis_rules(sharding.make_rules()):
    found = _step(num_chunks=num_chunks)(
      jax.device_put(_params(), NamedSharding(mesh, P())),
      jax.device_put(_batch(), rows),
      jax.random.key(0),
      False,
    )
  _assert_same(found, _plain())


def test_query_and_block_have_dropout_of_their_own():
  """With equal texts and one embedder only dropout tells the vectors apart."""
  batch = _batch()
  batch |= {f'block_{x}': batch[f'query_{x}'] for x in ('ids', 'mask')}
  batch['block_types'] = jnp.zeros((B, Q), jnp.int32)
  embed = functools.partial(model_lib.embed_pairs, TinyEmbedders(), _params())
  queries, blocks = embed(True, batch, jax.random.key(0))
  assert ((queries == 0) != (blocks == 0)).any()
  queries, blocks = embed(False, batch, None)
  np.testing.assert_array_equal(queries, blocks)


def _slow_rows(layout, title, sentences, chosen, removed):
  """The query's and the block's tokens, as lists."""
  query = [1, *sentences[chosen][: layout.query_length - 2], 2]
  body = [
    token
    for i, sentence in enumerate(sentences)
    for token in sentence
    if not (removed and i == chosen)
  ]
  title = title[: layout.block_length - 3]
  body = body[: layout.block_length - 3 - len(title)]
  types = [0] * (len(title) + 2) + [1] * (len(body) + 1)
  return query, [1, *title, 2, *body, 2], types


WORDS = 'river queen tensor apple moon wind stone bridge'.split()


@pytest.fixture(scope='module')
def blocks(tmp_path_factory):
  """Blocks of about three sentences; two documents are equal."""
  root = tmp_path_factory.mktemp('ict')
  rng = np.random.default_rng(0)
  texts = [
    ' '.join(
      ' '.join(rng.choice(WORDS, rng.integers(2, 6))).capitalize() + '.'
      for _ in range(rng.integers(1, 9))
    )
    for _ in range(12)
  ]
  rows = [
    {'id': str(i), 'title': f'Stone {WORDS[i % 8]}', 'text': text}
    for i, text in enumerate(texts)
  ]
  rows[5] = rows[4] | {'id': '5'}
  path = root / 'documents.jsonl'
  path.write_text('\n'.join(map(json.dumps, rows)))
  specials = ['[PAD]', '[CLS]', '[SEP]', '[MASK]', '[UNK]']
  (root / 'vocab.txt').write_text('\n'.join([*specials, '.', *WORDS]))
  tokens = tokens_lib.build_token_store(
    root / 'tokens',
    corpus_lib.Corpus(corpus_lib.CorpusConfig(kind='jsonl', path=str(path))),
    root / 'vocab.txt',
    with_title=False,
    with_text=True,
    documents_per_shard=5,
  )
  return blocks_lib.build_block_store(
    root / 'blocks', tokens, root / 'vocab.txt', max_length=20
  )


@pytest.mark.parametrize('block_length', [T, 20])
def test_rows_of_a_store(blocks, block_length):
  layout = dataclasses.replace(LAYOUT, block_length=block_length)
  ids = np.arange(blocks.num_blocks)[::-1].copy()
  rows = ict.read_rows(layout, blocks, ids, np.random.default_rng(0), 0.5)
  counts = np.asarray([len(blocks.sentences(i)) for i in ids.tolist()])
  rng = np.random.default_rng(0)
  chosen, removed = rng.integers(counts), rng.random(len(counts)) < 0.5
  for i, block in enumerate(ids.tolist()):
    tokens, lengths = blocks.gather_sentences(
      np.asarray(blocks.sentences(block)), 20
    )
    sentences = [t[:n].tolist() for t, n in zip(tokens, lengths, strict=True)]
    title, length = blocks.gather_titles(np.asarray([block]), 20)
    title = title[0, : length[0]].tolist()
    found = _slow_rows(layout, title, sentences, chosen[i], removed[i])
    for name, want in zip(
      ('query_ids', 'block_ids', 'block_types'), found, strict=True
    ):
      padding = [0] * (rows[name].shape[1] - len(want))
      assert rows[name][i].tolist() == want + padding, (i, name)
    assert rows['query_mask'][i].sum() == len(found[0])
    assert rows['block_mask'][i].sum() == len(found[1])
  np.testing.assert_array_equal(rows['sentence_removed'], removed)
  np.testing.assert_array_equal(rows['row_valid'], ~removed | (counts > 1))
  assert 0 < removed.sum() < len(ids) and not rows['row_valid'].all()
  hashes = rows['block_hash']
  same = (hashes[:, None] == hashes).all(axis=-1)
  expected = blocks.hashes(ids)
  np.testing.assert_array_equal(same, expected[:, None] == expected)
  assert same.sum() > len(ids)
