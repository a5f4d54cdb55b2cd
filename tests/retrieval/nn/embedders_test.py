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
from retrieval.nn import batch_encoder, embedders
from tests.retrieval.nn import tiny_bert, tiny_embedder

DATA = pathlib.Path(__file__).parents[2] / 'data'
WORDS = 'the old mill ran past a river'.split()


@pytest.fixture(scope='module')
def embedder(minilm):
  return embedders.Embedder.load(minilm, max_length=128, dtype=jnp.float32)


def test_equals_sentence_transformers(embedder):
  rows = json.loads((DATA / 'minilm_reference.json').read_text())
  found = embedder.embed_texts([row['text'] for row in rows])
  vectors = np.asarray([row['vector'] for row in rows], np.float32)
  assert found.shape == vectors.shape and found.dtype == np.float32
  assert ((found * vectors).sum(1) >= 0.99999).all()
  np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)


@pytest.fixture(scope='module')
def tiny(tmp_path_factory):
  return tiny_embedder.save(tmp_path_factory.mktemp('tiny') / 'made', WORDS)


def _load(path, max_length=8, **how):
  how = {'dtype': 'float32'} | how
  return embedders.Embedder.load(path, max_length=max_length, **how)


def test_order_devices_and_their_kernels_change_nothing(tiny, monkeypatch):
  rng = np.random.default_rng(0)
  texts = [' '.join(rng.choice(WORDS, n)) for n in rng.integers(1, 9, 37)]
  order, calls = rng.permutation(len(texts)), []
  monkeypatch.setattr(batch_encoder, 'default_tokens', lambda _: 64)
  embedder = _load(tiny)
  found = embedder.embed_texts(texts, progress=lambda *x: calls.append(x))
  assert calls[-1] == (len(texts), len(texts))
  turned = embedder.embed_texts([texts[i] for i in order])
  np.testing.assert_allclose(found[order], turned, atol=2e-6)
  assert len(jax.devices()) == 8
  alone = _load(tiny, devices=jax.devices()[:1]).embed_texts(texts)
  np.testing.assert_allclose(alone, found, atol=2e-6)
  monkeypatch.setattr(backend, 'is_cpu', lambda: False)
  kernels = _load(tiny).embed_texts(texts)
  np.testing.assert_allclose(kernels, found, atol=2e-6)


def test_long_rows_share_programs():
  shapes = []

  def encode(params, ids, lengths):
    shapes.append(ids.shape[1])
    return lengths[:, None] * params

  encoder = batch_encoder.BatchEncoder(
    encode, np.float32(1), dimension=1, max_length=8192
  )
  lengths = np.arange(1, 8193, 13)
  vectors = encoder([np.zeros(n, np.int32) for n in lengths], len(lengths))
  assert vectors[:, 0].tolist() == lengths.tolist() and len({*shapes}) <= 32


def test_the_fingerprint_tells_settings_and_weights_apart(tiny, tmp_path):
  made, same = _load(tiny), _load(tiny, dtype=jnp.float32)
  assert _load(tiny, 6).fingerprint != made.fingerprint == same.fingerprint
  path = shutil.copytree(tiny, tmp_path / 'other') / 'model.safetensors'
  tensors = safetensors.numpy.load_file(path)
  tensors[min(tensors)] += 0.01
  safetensors.numpy.save_file(tensors, path)
  assert _load(path.parent).fingerprint != made.fingerprint


@pytest.mark.parametrize('damage', ['missing', 'shape', 'not_finite'])
def test_a_damaged_checkpoint_is_named(tmp_path, damage):
  path = tiny_embedder.save(tmp_path, ['mill']) / 'model.safetensors'
  tensors = safetensors.numpy.load_file(path)
  name = next(n for n in tensors if n.endswith('layer.1.output.dense.weight'))
  if damage == 'missing':
    del tensors[name]
  elif damage == 'not_finite':
    tensors[name][0, 3] = np.nan
  else:
    tensors[name] = tensors[name][:, :-1].copy()
  safetensors.numpy.save_file(tensors, path)
  with pytest.raises(ValueError, match='layer.1.output.dense.weight'):
    embedders.Embedder.load(tmp_path)


def test_a_token_without_an_embedding_is_named(tmp_path):
  words = map(str, range(tiny_bert.V))
  path = tiny_embedder.save(tmp_path, words) / 'tokenizer.json'
  spec = json.loads(path.read_text())
  added = {'id': tiny_bert.V, 'content': 'LINDBY', 'special': False}
  flags = ('single_word', 'lstrip', 'rstrip', 'normalized')
  spec['added_tokens'].append(added | dict.fromkeys(flags, False))
  path.write_text(json.dumps(spec))
  with pytest.raises(ValueError, match='LINDBY'):
    embedders.Embedder.load(tmp_path, max_length=8)
