# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of the port and of TensorFlow in our form."""

import pathlib

from flax import traverse_util
import jax
import numpy as np
import pytest

from realm_jax.checkpoints import config as checkpoint_config, convert, names
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


def _back(params, hf_class, sizes, shared=True):
  """The tensors of parameters, by the table of names."""
  flat = traverse_util.flatten_dict(params, sep='/')
  return {
    x.name: flat[x.path].T if x.path.endswith('/kernel') else flat[x.path]
    for x in names.layout(hf_class, sizes, shared=shared)
    if x.role == names.PARAMETER
  }


@pytest.mark.parametrize('hf_class', names.CLASSES)
@pytest.mark.parametrize('shared', [True, False])
def test_there_and_back_is_bit_identical(hf_class, shared):
  tensors = _random(hf_class, shared=shared)
  found = _convert(tensors)
  _check_positions_are_skipped(tensors, found)
  assert found.hf_class == hf_class
  assert sorted(found.fates) == sorted(tensors)
  needed = _back(found.params, hf_class, SIZES, shared)
  assert {array.dtype for array in needed.values()} == {np.dtype(np.float32)}
  if found.vectors is not None:
    needed['block_emb'] = found.vectors
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
  back = _back(found.params, found.hf_class, found.sizes)
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


def test_parts_are_joined():
  a, b, d = (convert.from_bundle(_bundle(x), x, num_heads=2) for x in BUNDLES)
  assert sorted(convert.join([a, b])) == ['embedder', 'encoder']
  with pytest.raises(ValueError, match='RealmForOpenQA brings embedder'):
    convert.join([b, d])


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
