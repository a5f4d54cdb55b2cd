# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Starts from checkpoints made here, from trained retrievers, and at random."""

import dataclasses
import logging

from flax import linen as nn
import jax
import numpy as np
import pytest

from realm_jax.nn import initialize
from retrieval.nn import bert_checkpoint
from tests.realm_jax.nn import tiny
from tests.retrieval.nn import tiny_bert

V, D, F, LENGTH, LAYERS = tiny.V, 8, 12, 16, 3


def _save(path, pooler=True, head=True):
  tensors = tiny_bert.make_tensors(V, D, F, LAYERS, LENGTH)
  left_out = ['.pooler.'] * (not pooler) + ['cls.predictions.'] * (not head)
  tensors = {
    name: x
    for name, x in tensors.items()
    if not any(part in name for part in left_out)
  }
  return tiny_bert.save(
    path,
    tensors,
    vocab_size=V,
    hidden_size=D,
    intermediate_size=F,
    num_hidden_layers=LAYERS,
    max_position_embeddings=LENGTH,
    layer_norm_eps=1e-12,
  )


def _config(**fields):
  bert = tiny.bert_config(num_layers=2)
  return tiny.config(**({'embedder': bert, 'encoder': bert} | fields))


PARTS = ('embedder', 'encoder')


def _start(config, **kwargs):
  """With one key: what no source gives is always the same."""
  return initialize.init_params(jax.random.key(0), config, **kwargs)


@pytest.fixture
def log(caplog):
  with caplog.at_level(logging.INFO, logger='absl'):
    yield caplog


@pytest.fixture(scope='module')
def path(tmp_path_factory):
  return _save(tmp_path_factory.mktemp('bert') / 'whole')


@pytest.fixture(scope='module')
def random():
  return _start(_config())


def _equal(found, expected):
  jax.tree.map(np.testing.assert_array_equal, nn.unbox(found), expected)


def test_the_first_layers_of_a_checkpoint(path, random, log):
  config = _config()
  _, whole, head = bert_checkpoint.load_mlm(path)
  found = _start(config, embedder=path, encoder=str(path))
  expected = {k: v for k, v in whole.items() if k != 'layer_2'}
  table = whole['embeddings']['position']['embedding'][: tiny.J]
  expected['embeddings'] = whole['embeddings'] | {
    'position': {'embedding': table}
  }
  _equal(found['embedder']['bert'], expected)
  del expected['pooler']
  _equal(found['encoder'], {'bert': expected, 'mlm_head': head})
  # What no checkpoint gives is as at random, and every box is kept.
  assert jax.tree.structure(found) == jax.tree.structure(random)
  for part in ('projection', 'projection_norm'):
    _equal(found['embedder'][part], nn.unbox(random['embedder'][part]))
  assert 'the first 2 of 3 layers are used' in log.text


def test_a_checkpoint_without_pooler_and_head(tmp_path, random, log):
  path = _save(tmp_path / 'bare', pooler=False, head=False)
  found = _start(_config(), embedder=path, encoder=path)
  _equal(found['encoder']['mlm_head'], nn.unbox(random['encoder']['mlm_head']))
  pooler = nn.unbox(random['embedder']['bert']['pooler'])
  _equal(found['embedder']['bert']['pooler'], pooler)
  assert f'{path} has no masked-language-model head' in log.text
  assert f'{path} has no pooler: it starts at random' in log.text


def test_what_does_not_fit_is_named(path):
  wrong = tiny.bert_config(d_model=16, num_heads=4, num_layers=4, max_length=17)
  with pytest.raises(ValueError) as error:
    initialize.load_encoder(path, wrong)
  assert str(error.value) == (
    f'{path}: d_model is 8, expected 16; num_heads is 2, expected 4; '
    'num_layers is 3, expected at least 4; max_length is 16, expected at '
    'least 17.'
  )


def _trained(config, seed):
  return tiny.params(config, seed, parts='embedder')


def test_a_trained_retriever(random):
  config = _config()
  trained = _trained(config, 1)
  # Its projection comes along.
  found = _start(config, embedder=trained)
  _equal(found['embedder'], trained['embedder'])
  _equal(found['encoder'], nn.unbox(random['encoder']))
  two = dataclasses.replace(config, share_embedders=False)
  found = _start(two, embedder=trained, parts='embedder')
  assert set(found) == {'query_embedder', 'block_embedder'}
  for part in found.values():
    _equal(part, trained['embedder'])
  apart = _trained(two, 2)
  _equal(_start(two, embedder=apart, parts='embedder'), apart)


def test_a_trained_retriever_that_does_not_fit(random):
  config = _config()
  two = dataclasses.replace(config, share_embedders=False)
  message = r"have \['query_embedder', 'block_embedder'\], expected embedder"
  with pytest.raises(ValueError, match=message):
    initialize.start_embedders(_trained(two, 0), config)
  with pytest.raises(ValueError, match=r"have \['head'\], expected query_emb"):
    initialize.start_embedders({'head': 0}, two)
  wide = _trained(_config(projection_size=6), 0)
  with pytest.raises(ValueError) as error:
    initialize.replace(random, wide)
  said = str(error.value)
  assert 'embedder/projection/kernel has shape (8, 6), expected (8, 5)' in said
  deep = _trained(_config(embedder=tiny.bert_config(num_layers=3)), 0)
  message = 'the model has no embedder/bert/layer_2/attention/key/bias'
  with pytest.raises(ValueError, match=message):
    initialize.replace(random, deep)


def test_a_trained_part_must_be_whole():
  config = _config()
  trained = {part: tiny.params(config, parts=part)[part] for part in PARTS}
  encoder = {**trained['encoder'], 'bert': dict(trained['encoder']['bert'])}
  del encoder['bert']['layer_0']
  with pytest.raises(ValueError, match='there is no encoder/bert/layer_0/'):
    _start(config, encoder={'encoder': encoder})
  embedder = dict(trained['embedder'])
  del embedder['projection']
  with pytest.raises(ValueError, match='there is no embedder/projection/bias'):
    _start(config, embedder={'embedder': embedder})
