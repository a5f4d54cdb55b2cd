# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of the port and of TensorFlow in our form, and back."""

import dataclasses
import pathlib

import jax
import numpy as np
import pytest

from realm_jax.checkpoints import config as checkpoint_config, convert, names
from realm_jax.nn import config as config_lib, open_qa
from retrieval.formats import tensor_bundle
from retrieval.nn import bert

DATA = pathlib.Path(__file__).parents[2] / 'data' / 'realm'
HF = DATA / 'hf_openqa'
BUNDLES = {
  'A': 'bert/variables/variables',
  'B': 'embedder/variables/variables',
  'D': 'orqa/model.ckpt-20',
}
SIZES = names.Sizes(
  bert=bert.BertConfig(
    vocab_size=20, d_model=8, d_ff=12, num_heads=2, num_layers=1, max_length=6
  ),
  projection_size=4,
  span_hidden_size=3,
  num_blocks=5,
)


def _random(hf_class, *, shared=True):
  """A state dict of a class, with what is tied."""
  rng = np.random.default_rng(0)
  found = {}
  for tensor in names.layout(hf_class, SIZES, shared=shared):
    made = rng.normal(size=tensor.shape).astype(np.float32)
    tied = tensor.role == names.TIED
    found[tensor.name] = found[tensor.path] if tied else made
  return found


def _convert(tensors, **options):
  return convert.from_hf(tensors, SIZES, 'here', **options)


@pytest.mark.parametrize('hf_class', names.CLASSES)
@pytest.mark.parametrize('shared', [True, False])
def test_there_and_back_is_bit_identical(hf_class, shared):
  tensors = _random(hf_class, shared=shared)
  found = _convert(tensors)
  _check_positions_are_skipped(tensors, found)
  assert found.hf_class == hf_class
  assert sorted(found.fates) == sorted(tensors)
  back = convert.to_hf(found.params, hf_class, SIZES, vectors=found.vectors)
  shapes = {name: array.shape for name, array in tensors.items()}
  assert {name: array.shape for name, array in back.items()} == shapes
  assert {array.dtype for array in back.values()} == {np.dtype(np.float32)}
  needed = {
    tensor.name: back[tensor.name]
    for tensor in names.layout(hf_class, SIZES, shared=shared)
    if tensor.role in (names.PARAMETER, names.VECTORS)
  }
  for name, array in needed.items():
    np.testing.assert_array_equal(array, tensors[name])
  # What is tied or unused may be absent.
  again = _convert(needed).params
  jax.tree.map(np.testing.assert_array_equal, again, found.params)
  wanted = {
    'RealmEmbedder': {'embedder'},
    'RealmScorer': {'embedder'} if shared else {*_TWO},
    'RealmKnowledgeAugEncoder': {'encoder'},
    'RealmReader': {'reader'},
    'RealmForOpenQA': {'embedder', 'reader'},
  }
  assert {*found.params} == wanted[hf_class]


def _check_positions_are_skipped(tensors, plain):
  """Files of 2022 have the numbers of positions beside each embedding."""
  words = 'embeddings.word_embeddings.weight'
  positions = {
    name.replace(words, 'embeddings.position_ids'): np.arange(6)[None]
    for name in tensors
    if name.endswith(words)
  }
  found = _convert(tensors | positions)
  assert positions
  assert found.fates == plain.fates | dict.fromkeys(positions, 'skipped')
  jax.tree.map(np.testing.assert_array_equal, found.params, plain.params)
  with pytest.raises(ValueError, match='my_position_ids is not of'):
    _convert(tensors | {'realm.embeddings.my_position_ids': np.arange(6)})


_TWO = ('query_embedder', 'block_embedder')


def test_two_embedders_keep_their_sides():
  tensors = _random('RealmScorer', shared=False)
  params = _convert(tensors).params
  for ours, theirs in zip(_TWO, ('query_embedder', 'embedder'), strict=True):
    kernel = params[ours]['projection']['kernel']
    np.testing.assert_array_equal(
      kernel.T, tensors[f'{theirs}.cls.dense.weight']
    )
  # The port's reader has one embedder, that of the questions.
  reader = _convert(_random('RealmReader')).params
  back = convert.to_hf(params | reader, 'RealmForOpenQA', SIZES)
  np.testing.assert_array_equal(
    back['embedder.cls.dense.weight'],
    tensors['query_embedder.cls.dense.weight'],
  )
  assert back['block_emb'].shape == (0, 4)


def test_every_fault_is_named():
  tensors = _random('RealmKnowledgeAugEncoder')
  del tensors['realm.encoder.layer.0.output.dense.bias']
  tensors['cls.predictions.bias'] = np.zeros(7, np.float32)
  tensors['cls.predictions.decoder.weight'] = np.ones((20, 8), np.float32)
  tensors['realm.pooler.dense.bias'] = np.zeros((2, 2), np.float32)
  tensors['lm_head.weight'] = np.zeros(3, np.float32)
  for part, value in (('query', np.nan), ('key', np.inf)):
    name = f'realm.encoder.layer.0.attention.self.{part}.bias'
    tensors[name] = np.full(8, value, np.float32)
  with pytest.raises(ValueError) as error:
    _convert(tensors)
  message = str(error.value)
  assert message.startswith('here: ')
  for part in (
    'realm.encoder.layer.0.output.dense.bias is missing',
    'cls.predictions.bias has shape (7,), expected (20,)',
    'cls.predictions.decoder.weight differs from realm.embeddings.word_emb',
    'realm.pooler.dense.bias has shape (2, 2), expected (8,)',
    'lm_head.weight is not of RealmKnowledgeAugEncoder',
    'attention.self.query.bias holds a value that is not finite',
    'attention.self.key.bias holds a value that is not finite',
  ):
    assert part in message


def _bundle(name):
  bundle = tensor_bundle.Bundle(DATA / 'bundles' / BUNDLES[name])
  return {variable: bundle.tensor(variable) for variable in bundle.entries}


@pytest.mark.parametrize('name', BUNDLES)
def test_bundles_become_parameters(name):
  variables = _bundle(name)
  found = convert.from_bundle(variables, name, num_heads=2)
  assert sorted(found.fates) == sorted(variables)
  assert found.hf_class == names.BUNDLES[name]
  back = convert.to_hf(found.params, found.hf_class, found.sizes)
  checked = 0
  for hf_name, array in back.items():
    variable = names.tf_name(name, hf_name)
    if variable in variables and found.fates[variable] != names.UNUSED:
      turned = variable.endswith('/kernel')
      wanted = variables[variable]
      np.testing.assert_array_equal(array, wanted.T if turned else wanted)
      checked += 1
  apart = [x for x in found.fates.values() if x in ('skipped', names.UNUSED)]
  assert checked == len(variables) - len(apart)
  assert found.step == (20 if name == 'D' else 0)


def test_faults_of_bundles_are_named():
  variables = _bundle('D')
  del variables['reader/dense_1/bias']
  variables['reader/dense/kernel'] = variables['reader/dense/kernel'].T
  variables['reader/dense_2/bias'] = np.zeros(1, np.float32)
  with pytest.raises(ValueError) as error:
    convert.from_bundle(variables, 'there', num_heads=2)
  for part in (
    'there: ',
    'reader.qa_outputs.dense_output.bias is missing',
    'reader.qa_outputs.dense_intermediate.weight has shape (8, 12)',
    'reader/dense_2/bias is not of RealmForOpenQA',
  ):
    assert part in str(error.value)


def test_parts_are_joined_and_told_apart():
  a, b, d = (convert.from_bundle(_bundle(x), x, num_heads=2) for x in BUNDLES)
  assert sorted(convert.join([a, b])) == ['embedder', 'encoder']
  with pytest.raises(ValueError, match='RealmForOpenQA brings embedder'):
    convert.join([b, d])
  assert convert.fitting(convert.join([a, b])) == {
    'scorer': 'RealmScorer',
    'encoder': 'RealmKnowledgeAugEncoder',
  }
  assert convert.fitting(d.params) == {'': 'RealmForOpenQA'}
  assert convert.fitting(b.params) == {'': 'RealmEmbedder'}
  with pytest.raises(ValueError, match="'decoder'"):
    convert.fitting({'decoder': {}})


def _realm_config(fields):
  """The model that the port computes: pooler, projection and norm, no dropout."""
  config = checkpoint_config.bert_config(fields)
  return config_lib.RealmConfig(
    embedder=config,
    encoder=config,
    projection_size=fields['retriever_proj_size'],
    projection_norm_eps=fields['layer_norm_eps'],
    projection_dropout_rate=0.0,
  )


def _open_qa_config(fields):
  """The model of the port's RealmForOpenQA."""
  return open_qa.OpenQaConfig(
    realm=_realm_config(fields),
    span_hidden_size=fields['span_hidden_size'],
    max_span_width=fields['max_span_width'],
    span_norm_eps=fields['reader_layer_norm_eps'],
  )


def test_what_the_port_cannot_hold_is_refused():
  fields = checkpoint_config.read(HF / 'config.json')
  config = dataclasses.replace(
    _realm_config(fields), pooling='mean', projection_norm=False
  )
  message = "pooling is 'mean'.*projection_norm is False"
  with pytest.raises(ValueError, match=message):
    checkpoint_config.to_fields('RealmEmbedder', config)
  small = dataclasses.replace(config.encoder, num_layers=1)
  config = dataclasses.replace(_realm_config(fields), encoder=small)
  with pytest.raises(ValueError, match='encoder.num_layers is 1, expected 2'):
    checkpoint_config.to_fields('RealmForOpenQA', config)
  config = dataclasses.replace(_open_qa_config(fields), coverage_weight=4.0)
  with pytest.raises(ValueError, match='reader.coverage_weight'):
    checkpoint_config.to_fields('RealmReader', config.realm, config)


@pytest.mark.usefixtures('unchecked')
def test_other_configs_are_refused(tmp_path):
  file = tmp_path / 'config.json'
  file.write_text('{"model_type": "bert"}')
  with pytest.raises(ValueError, match="model_type 'bert'; expected 'realm'"):
    checkpoint_config.read(file)
  file.write_text('{"model_type": "realm", "hidden_act": "swish"}')
  with pytest.raises(ValueError, match="config.json: activation='swish'"):
    checkpoint_config.read(file)
  for name, value in (('hidden_size', '8.5'), ('layer_norm_eps', 'false')):
    file.write_text(f'{{"model_type": "realm", "{name}": {value}}}')
    with pytest.raises(ValueError, match=f"config.json: field '{name}'"):
      checkpoint_config.read(file)
  file.write_text('{"model_type": "realm", "hidden_dropout_prob": 0}')
  assert checkpoint_config.read(file)['hidden_dropout_prob'] == 0
  file.write_text('{"model_type": "realm"}')
  sizes = checkpoint_config.sizes(checkpoint_config.read(file))
  assert sizes.bert.vocab_size == 30522 and sizes.num_blocks == 13_353_718
