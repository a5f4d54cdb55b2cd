# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Blocks to vectors and queries to blocks, against the model row by row."""

import pickle
from unittest import mock

import cloudpickle
import jax
import numpy as np
import pytest

from realm_jax.data import examples
from realm_jax.nn import realm as model_lib
from realm_jax.trained import embedders
from retrieval.index import index_versions, published_index as index_lib
from retrieval.store import executors
from tests.realm_jax.nn import tiny
from tests.retrieval.store import tiny_stores
from tests.retrieval.text import tiny_blocks

INDEX = index_lib.IndexConfig(metric='dot_product', num_queries=5)
ATOL = 1e-5  # float32 through a LayerNorm over five numbers


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  """Blocks, and a model whose queries and blocks have embedders of their own."""
  root = tmp_path_factory.mktemp('data')
  made = tiny_blocks.make(root, np.random.default_rng(0), num_documents=20)
  made.layout = examples.Layout(
    query_length=10, block_length=32, **made.special_ids
  )
  bert = tiny.bert_config(vocab_size=made.tokenizer.vocab_size, max_length=32)
  made.config = tiny.config(embedder=bert, encoder=bert, share_embedders=False)
  model = model_lib.Realm(made.config)
  made.apply = jax.jit(
    lambda params, method, *rows: model.apply(
      {'params': params}, *rows, method=method
    ),
    static_argnums=1,
  )
  made.params = [
    embedders.embedder_params(tiny.params(made.config, seed)) for seed in (0, 1)
  ]
  # Every block by the model's own method, from padded rows; null is the last.
  blocks = np.append(np.arange(made.blocks.num_blocks), examples.NULL)
  rows = examples.titled_blocks(made.layout, made.blocks, blocks)
  made.vectors = [
    np.asarray(made.apply(params, 'embed_blocks', *rows))
    for params in made.params
  ]
  return made


@pytest.fixture(scope='module')
def embedder(data):
  return _embedder(data, jax.devices()[:1])


def _embedder(data, devices, params=None):
  params = data.params[0] if params is None else params
  made_of = data.config, data.layout, data.blocks, params
  with mock.patch.object(jax, 'local_devices', lambda: devices):
    return embedders.BlockEmbedder(*made_of, batch_tokens=128)


def test_blocks_are_embedded_as_the_model_embeds_padded_rows(
  data, embedder, monkeypatch
):
  monkeypatch.setattr(embedders, '_ROWS', 7)
  n = data.blocks.num_blocks
  ids = np.append(np.arange(n), examples.NULL)
  rng = np.random.default_rng(0)
  ids = rng.permutation(np.concatenate([ids, ids[-3:]]))
  calls = []
  found = embedder(ids, lambda *done: calls.append(done))
  np.testing.assert_allclose(found, data.vectors[0][ids], atol=ATOL)
  assert calls[-1] == (n + 4, n + 4) and found.dtype == np.float32
  # The segments matter: what follows the first [SEP] is of another kind.
  rows, mask, types = examples.titled_blocks(data.layout, data.blocks, ids[:4])
  one_kind = data.apply(
    data.params[0], 'embed_blocks', rows, mask, np.zeros_like(types)
  )
  assert np.abs(found[:4] - one_kind).max() > 0.01


def test_one_device_equals_eight(data, embedder):
  ids = np.append(np.arange(data.blocks.num_blocks), examples.NULL)
  eight = _embedder(data, jax.devices())
  copy = pickle.loads(cloudpickle.dumps(eight))  # as another process gets it
  np.testing.assert_allclose(eight(ids), embedder(ids), atol=ATOL)
  np.testing.assert_array_equal(copy(ids), eight(ids))


def test_other_processes_embed_the_blocks_of_a_version(data, tmp_path):
  embedder = _embedder(data, jax.devices())  # on all devices, as they do
  arguments = (1, data.params[0], data.blocks, embedder)
  folders = [index_versions.VersionFolder(tmp_path / x) for x in ('a', 'b')]
  assert data.blocks.store.num_shards > 1
  name = folders[0].build(*arguments, INDEX)
  again = folders[1].build(*arguments, INDEX, executor=executors.Processes(2))
  assert name == again
  one, two = (
    tiny_stores.file_hashes(folder.root / name / 'vectors')
    for folder in folders
  )
  assert one == two


def test_vectors_that_are_not_finite_are_refused(data):
  broken = jax.tree.map(np.copy, data.params[0])
  broken['block_embedder']['projection']['bias'][0] = np.nan
  with pytest.raises(ValueError, match='not finite'):
    _embedder(data, jax.devices()[:1], broken)(np.arange(4))


@pytest.fixture(scope='module')
def indices(data, tmp_path_factory):
  """An older and a newer version."""
  folder = index_versions.VersionFolder(tmp_path_factory.mktemp('index'))
  found = []
  for step, params in ((10, data.params[0]), (20, data.params[1])):
    embedder = _embedder(data, jax.devices()[:1], params)
    name = folder.build(step, params, data.blocks, embedder, INDEX)
    version = folder.open(name, data.blocks)
    found.append(embedders.BlockIndex(version, data.config))
  return found


def _queries(data, rng):
  counts = rng.integers(1, 9, 6)
  tokens = rng.integers(5, data.tokenizer.vocab_size, (6, 8))
  found = examples.queries(data.layout, tokens, counts)
  return found['query_ids'], found['query_mask']


def _brute_force(data, seed, ids, mask, k):
  """The best of all blocks, by vectors of one snapshot alone."""
  queries = data.apply(data.params[seed], 'embed_queries', ids, mask)
  scores = np.asarray(queries) @ data.vectors[seed][:-1].T
  return np.argsort(-scores, axis=1)[:, :k]


def test_each_version_answers_with_its_own_parameters(data, indices):
  ids, mask = _queries(data, np.random.default_rng(1))
  want = [_brute_force(data, seed, ids, mask, 5) for seed in (0, 1)]
  for _ in range(2):
    for index, best in zip(indices, want, strict=True):
      np.testing.assert_array_equal(index.retrieve(ids, mask, 5), best)
  assert [index.step for index in indices] == [10, 20]
  assert (want[0] != want[1]).any()


def test_texts_are_cut_and_padded(data, indices, monkeypatch):
  monkeypatch.setattr(embedders, '_QUERY_BATCH', 6)
  rng = np.random.default_rng(3)
  texts = [' '.join(rng.choice(tiny_blocks.WORDS, n)) for n in range(8)]
  texts += ['mill ' * 50, 'mill ' * 8]
  layout = data.layout
  found = indices[0].retrieve_texts(texts, 4, data.tokenizer, layout)
  assert found.shape == (10, 4) and found.dtype == np.int64
  for text, row in zip(texts, found, strict=True):
    tokens = data.tokenizer.encode(text).ids[: layout.query_tokens]
    query = [layout.cls_id, *tokens, layout.sep_id]
    ids = np.full((1, layout.query_length), layout.pad_id, np.int32)
    ids[0, : len(query)] = query
    mask = np.arange(layout.query_length)[None] < len(query)
    assert [row.tolist()] == _brute_force(data, 0, ids, mask, 4).tolist()
  assert (found[-2] == found[-1]).all()
  none = indices[0].retrieve_texts([], 4, data.tokenizer, layout)
  assert none.shape == (0, 4) and none.dtype == np.int64
