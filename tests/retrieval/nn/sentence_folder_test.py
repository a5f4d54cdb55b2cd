# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Folders of sentence-transformers against that library, and what is refused."""

import json
import pathlib
import pickle

import jax
import numpy as np
import pytest
import safetensors.numpy

from retrieval.nn import bert_checkpoint, embedders
from tests.retrieval.nn import sentence_folders

DATA = pathlib.Path(__file__).parents[2] / 'data'
EXPECTED = json.loads((DATA / 'sentence_vectors.json').read_text())
TEXTS = sentence_folders.TEXTS


def _load(path, **how):
  devices = jax.devices()[:1]
  return embedders.Embedder.load(path, dtype='float32', devices=devices, **how)


@pytest.fixture(scope='module')
def loaded(tmp_path_factory):
  root = tmp_path_factory.mktemp('kinds')
  return {
    kind: _load(sentence_folders.save(root / kind, kind)) for kind in EXPECTED
  }


@pytest.mark.parametrize('kind', EXPECTED)
def test_vectors_equal_sentence_transformers(loaded, kind):
  embedder = loaded[kind]
  found = embedder.embed_texts(TEXTS), embedder.embed_queries(TEXTS)
  np.testing.assert_allclose(found, EXPECTED[kind], atol=1e-5)


def test_every_statement_is_in_the_fingerprint(loaded):
  prints = [x.fingerprint for x in loaded.values()]
  assert len({*prints}) == len(prints)
  again = pickle.loads(pickle.dumps(loaded['denses']))
  assert again.fingerprint == loaded['denses'].fingerprint
  assert again.embed_texts(TEXTS).shape == (3, 6)


def test_similarity_decides_the_metric(tmp_path):
  folder = sentence_folders.save(tmp_path / 'a', 'mean')
  file = folder / 'config_sentence_transformers.json'
  lengths = {}
  for said in ('cosine', 'dot', 'euclidean', None):
    sentence_folders.edit(file, similarity_fn_name=said)
    embedder = _load(folder)
    unit = np.allclose(np.linalg.norm(embedder.embed_texts(TEXTS), axis=1), 1)
    lengths[said] = embedder.metric, unit
  assert lengths == {
    'cosine': ('squared_l2', True),
    'dot': ('dot_product', False),
    'euclidean': ('squared_l2', False),
    None: ('squared_l2', True),
  }


def test_the_length_of_a_text(tmp_path):
  folder = sentence_folders.save(tmp_path / 'a', 'roberta')
  assert _load(folder).max_length == sentence_folders.LENGTH
  assert _load(folder, max_length=9).max_length == 9
  assert _load(folder, max_length=99).max_length == sentence_folders.LENGTH
  (folder / 'sentence_bert_config.json').write_text('{}')
  sentence_folders.edit(folder / 'tokenizer_config.json', model_max_length=7)
  assert _load(folder).max_length == 7
  sentence_folders.edit(
    folder / 'tokenizer_config.json', model_max_length=10**30
  )
  assert _load(folder).max_length == sentence_folders.LENGTH


def test_older_layouts(tmp_path):
  """The encoder in a folder of its own, and other prefixes."""
  folder = sentence_folders.save(tmp_path / 'a', 'roberta')
  inner = folder / '0_Transformer'
  inner.mkdir()
  tensors = safetensors.numpy.load_file(folder / 'model.safetensors')
  (folder / 'model.safetensors').unlink()
  tensors = {f'roberta.{k}': x for k, x in tensors.items()}
  tensors['lm_head.bias'] = np.zeros(3, np.float32)
  safetensors.numpy.save_file(tensors, inner / 'model.safetensors')
  for name in ('config.json', 'tokenizer.json', 'sentence_bert_config.json'):
    (folder / name).rename(inner / name)
  (inner / 'sentence_bert_config.json').rename(
    inner / 'sentence_roberta_config.json'
  )
  modules = json.loads((folder / 'modules.json').read_text())
  modules[0]['path'] = '0_Transformer'
  modules[1]['type'] = (
    'sentence_transformers.sentence_transformer.modules.Pooling'
  )
  (folder / 'modules.json').write_text(json.dumps(modules), 'utf-8-sig')
  embedder = _load(folder)
  np.testing.assert_allclose(
    embedder.embed_texts(TEXTS), EXPECTED['roberta'][0], atol=1e-5
  )


REFUSED = [
  ('config.json', 'model_type', 'electra'),
  ('config.json', 'model_type', 'distilbert'),
  ('config.json', 'model_type', ['bert']),
  ('config.json', 'is_decoder', True),
  ('config.json', 'position_embedding_type', 'relative_key'),
  ('config.json', 'hidden_act', 'silu'),
  ('config_sentence_transformers.json', 'similarity_fn_name', 'manhattan'),
  ('config_sentence_transformers.json', 'model_type', 'SparseEncoder'),
  ('config_sentence_transformers.json', 'default_prompt_name', 'absent'),
  ('config_sentence_transformers.json', 'prompts', {'query': 5}),
  ('sentence_bert_config.json', 'transformer_task', 'fill-mask'),
  ('1_Pooling/config.json', 'pooling_mode', 'median'),
  ('1_Pooling/config.json', 'pooling_mode', 5),
  ('1_Pooling/config.json', 'pooling_mode_median_tokens', True),
  ('1_Pooling/config.json', 'include_prompt', 'no'),
  ('2_Dense/config.json', 'activation_function', 'mine.Tanh'),
  ('2_Dense/config.json', 'use_residual', 'yes'),
  ('2_Dense/config.json', 'in_features', 9),
]


@pytest.mark.parametrize(('file', 'field', 'value'), REFUSED)
def test_what_is_not_supported_is_refused_by_name(tmp_path, file, field, value):
  folder = sentence_folders.save(tmp_path / 'a', 'dense')
  sentence_folders.edit(folder / file, **{field: value})
  with pytest.raises(ValueError) as error:
    _load(folder)
  said = str(error.value)
  assert field in said and str(folder) in said and '\n' not in said


def test_a_residual_layer_without_sizes_is_refused(tmp_path):
  folder = sentence_folders.save(tmp_path / 'a', 'dense')
  sizes = dict.fromkeys(('in_features', 'out_features'))
  file = folder / '2_Dense' / 'config.json'
  sentence_folders.edit(file, use_residual=True, **sizes)
  with pytest.raises(ValueError, match='in_features'):
    _load(folder)


MODULES = [
  {},
  {'Transformer': ''},
  {'Transformer': '', 'WordWeights': ''},
  {'Router': '', 'Pooling': '1_Pooling'},
  {'Transformer': '..', 'Pooling': ''},
  {'Transformer': '', 'Pooling': '1_Pooling', 'LayerNorm': '2'},
]


@pytest.mark.parametrize('modules', MODULES)
def test_modules_that_are_not_supported(tmp_path, modules):
  folder = sentence_folders.save(tmp_path / 'a', 'dense')
  modules = [{'type': f'a.{x}', 'path': path} for x, path in modules.items()]
  for stated in (modules, {'a': modules}):
    (folder / 'modules.json').write_text(json.dumps(stated))
    with pytest.raises(ValueError, match='modules.json'):
      _load(folder)


def test_a_prompt_must_leave_room(tmp_path):
  folder = sentence_folders.save(tmp_path / 'a', 'not pooled')
  with pytest.raises(ValueError, match='prompts'):
    _load(folder, max_length=4)


def test_a_model_of_blocks_is_bert_alone(tmp_path):
  folder = sentence_folders.save(tmp_path / 'a', 'roberta')
  with pytest.raises(ValueError, match='model_type'):
    bert_checkpoint.load_mlm(folder)
