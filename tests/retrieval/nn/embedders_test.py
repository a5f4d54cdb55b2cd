# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The packaged BERT against sentence-transformers, and the embedder's ways."""

import json
import pathlib
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from retrieval.kernels import backend
from retrieval.nn import (
  bert_checkpoint,
  embedders,
)
from tests.retrieval.nn import tiny_bert, tiny_embedder

REFERENCE = pathlib.Path(__file__).parents[2] / 'data' / 'minilm_reference.json'


@pytest.fixture(scope='module')
def folder():
  try:
    return bert_checkpoint.find_minilm()
  except (FileNotFoundError, ImportError, ValueError) as e:
    pytest.skip(f'The packaged BERT is not installed: {e}')


@pytest.fixture(scope='module')
def reference():
  rows = json.loads(REFERENCE.read_text())
  texts = [row['text'] for row in rows]
  return texts, np.asarray([row['vector'] for row in rows], np.float32)


@pytest.fixture(scope='module')
def embedder(folder):
  return embedders.Embedder.load(
    'minilm', max_length=128, dtype=jnp.float32, batch_tokens=512
  )


def test_equals_sentence_transformers(embedder, reference):
  texts, vectors = reference
  found = embedder.embed_texts(texts)
  assert found.shape == vectors.shape and found.dtype == np.float32
  assert ((found * vectors).sum(1) >= 0.99999).all()
  np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)


def test_specials_in_a_text_are_text(embedder):
  (row,) = embedder.token_ids(['the [SEP] of [MASK] [CLS]'])
  assert (row.count(101), row.count(102), row.count(103)) == (1, 1, 0)


def test_order_and_batching_change_nothing(embedder, reference):
  texts, _ = reference
  mixed = [texts[i % len(texts)] for i in range(37)]
  order = np.random.default_rng(0).permutation(len(mixed))
  calls = []
  a = embedder.embed_texts(mixed, progress=lambda *x: calls.append(x))
  b = embedder.embed_texts([mixed[i] for i in order])
  np.testing.assert_allclose(a[order], b, atol=2e-6)
  assert calls[-1] == (len(mixed), len(mixed))


def test_one_device_equals_eight(embedder, reference):
  texts, _ = reference
  alone = embedders.Embedder.load(
    'minilm', max_length=128, dtype=jnp.float32, devices=jax.devices()[:1]
  )
  assert len(jax.devices()) == 8
  np.testing.assert_allclose(
    alone.embed_texts(texts), embedder.embed_texts(texts), atol=2e-6
  )


def test_devices_with_kernels_embed_the_same(embedder, reference, monkeypatch):
  texts, vectors = reference
  monkeypatch.setattr(backend, 'is_cpu', lambda: False)
  other = embedders.Embedder.load('minilm', max_length=128, dtype='float32')
  np.testing.assert_allclose(
    other.embed_texts(texts[:9]), embedder.embed_texts(texts[:9]), atol=2e-6
  )


def test_the_fingerprint_tells_settings_apart(embedder, folder):
  del folder
  other = embedders.Embedder.load('minilm', max_length=64, dtype=jnp.float32)
  same = embedders.Embedder.load('minilm', max_length=128, dtype='float32')
  assert other.fingerprint != embedder.fingerprint == same.fingerprint


@pytest.mark.parametrize('damage', ['missing', 'shape', 'not_finite'])
def test_a_damaged_checkpoint_is_named(folder, tmp_path, damage):
  copy = tmp_path / 'model'
  shutil.copytree(folder, copy)
  tensors = safetensors.numpy.load_file(copy / 'model.safetensors')
  name = next(n for n in tensors if n.endswith('layer.3.output.dense.weight'))
  if damage == 'missing':
    del tensors[name]
  elif damage == 'not_finite':
    tensors[name][0, 3] = np.nan
  else:
    tensors[name] = tensors[name][:, :-1].copy()
  safetensors.numpy.save_file(tensors, copy / 'model.safetensors')
  with pytest.raises(ValueError, match='layer.3.output.dense.weight'):
    embedders.Embedder.load(copy)


def test_a_token_without_an_embedding_is_named(folder, tmp_path):
  copy = tmp_path / 'model'
  shutil.copytree(folder, copy)
  spec = json.loads((copy / 'tokenizer.json').read_text())
  spec['added_tokens'] += [
    spec['added_tokens'][0] | {'id': 30522, 'content': 'LINDBY'}
  ]
  (copy / 'tokenizer.json').write_text(json.dumps(spec))
  with pytest.raises(ValueError, match='LINDBY'):
    embedders.Embedder.load(copy)


def test_a_saved_embedder_is_the_same(tmp_path):
  words = 'the old mill ran past a river'.split()
  folder = tiny_embedder.save(tmp_path / 'made', words)
  made = embedders.Embedder.load(folder, max_length=6)
  same = embedders.Embedder.load(made.save(tmp_path / 'same'), max_length=6)
  assert same.fingerprint == made.fingerprint
  texts = [' '.join(words), 'a mill', 'unknown']
  assert [len(x) for x in same.token_ids(texts)] == [6, 4, 3]
  np.testing.assert_array_equal(
    same.embed_texts(texts), made.embed_texts(texts)
  )
  other = jax.tree.map(lambda x: x + 0.01, made.params)
  changed = embedders.Embedder.load(
    made.save(tmp_path / 'other', other), max_length=6
  )
  assert changed.fingerprint != made.fingerprint
  jax.tree.map(np.testing.assert_array_equal, changed.params, other)
  assert made.dimension == tiny_bert.D
  with pytest.raises(ValueError, match='same: is there already'):
    made.save(tmp_path / 'same')
  assert not [x for x in tmp_path.iterdir() if x.name.startswith('.')]
