# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""ModernBERT against transformers and sentence-transformers, and what is refused.

The slow test computes the expected values anew where SENTENCE_TRANSFORMERS_PYTHON
names a Python that has these libraries.
"""

import dataclasses
import functools
import json
import math
import os
import pathlib
import subprocess

import jax
import numpy as np
import pytest

from retrieval.kernels import backend
from retrieval.nn import bert_checkpoint, bert_family, embedders, modern_bert
from tests.retrieval.nn import modern_berts

DATA = pathlib.Path(__file__).parents[2] / 'data'
EXPECTED = json.loads((DATA / 'modern_bert.json').read_text())
PYTHON = os.environ.get('SENTENCE_TRANSFORMERS_PYTHON', '')
KINDS = [*modern_berts.KINDS]


@functools.partial(jax.jit, static_argnames='config')
def _hidden(config, params, ids, mask, positions=None):
  model = bert_family.module(config)
  return model.apply({'params': params}, ids, mask, None, positions).hidden


def _embedder(path, **how):
  devices = jax.devices()[:1]
  return embedders.Embedder.load(path, dtype='float32', devices=devices, **how)


@pytest.fixture(scope='module', params=KINDS)
def kind(request):
  return request.param


@pytest.fixture(scope='module')
def folder(kind, tmp_path_factory):
  return modern_berts.save(tmp_path_factory.mktemp('modern') / kind, kind)


@pytest.fixture(scope='module')
def loaded(folder):
  return bert_checkpoint.load_mlm(folder, bert_checkpoint.MODELS)[:2]


@pytest.fixture(scope='module')
def hidden(loaded):
  return np.asarray(_hidden(*loaded, *modern_berts.rows()))


def test_hidden_states_equal_transformers(hidden, kind):
  rows = zip(
    hidden, modern_berts.LENGTHS, EXPECTED[kind]['hidden'], strict=True
  )
  for row, length, expected in rows:
    row = row[: length : modern_berts.STRIDE]
    np.testing.assert_allclose(row, expected, atol=2e-6, rtol=0)


def test_padding_changes_nothing(loaded, hidden):
  ids, mask = modern_berts.rows()
  for i in (1, 3):
    row = slice(i, i + 1), slice(0, modern_berts.LENGTHS[i])
    alone = _hidden(*loaded, ids[row], mask[row])
    np.testing.assert_allclose(alone, hidden[row], atol=2e-6)


def test_queries_in_blocks_change_nothing(loaded, hidden, monkeypatch):
  ids, mask = modern_berts.rows()
  _hidden.clear_cache()
  monkeypatch.setattr(modern_bert, '_QUERIES', 200)
  blocks = np.asarray(_hidden(*loaded, ids, mask))
  _hidden.clear_cache()
  np.testing.assert_allclose(blocks[mask], hidden[mask], atol=2e-6)


@pytest.mark.parametrize('layers', [2, 5])
def test_the_last_layer_at_positions(loaded, layers):
  config, params = loaded
  config = dataclasses.replace(
    config, num_layers=layers, layer_types=config.layer_types[:layers]
  )
  ids, mask = (x[:, :300] for x in modern_berts.rows())
  positions = np.array([[0, 299], [250, 3], [69, 0], [2, 0]])
  whole = np.asarray(_hidden(config, params, ids, mask))
  expected = np.take_along_axis(whole, positions[..., None], axis=1)
  some = _hidden(config, params, ids, mask, positions)
  np.testing.assert_allclose(some, expected, atol=2e-6)


def test_tokens_equal_transformers(folder, kind):
  """A special token in a text is text, as with split_special_tokens=True."""
  file = folder / 'tokenizer.json'
  tokenizer = embedders._read_tokenizer(file, lowercase=False)
  encodings = tokenizer.encode_batch(modern_berts.TEXTS)
  assert [x.ids for x in encodings] == EXPECTED[kind]['ids']


def test_vectors_equal_sentence_transformers(folder, kind, monkeypatch):
  texts = [x for x in modern_berts.TEXTS if '[MASK]' not in x]
  expected = EXPECTED[kind]
  embedder = _embedder(folder)
  assert embedder.max_length == 64
  passages = embedder.embed_texts(texts)
  np.testing.assert_allclose(passages, expected['passages'], atol=2e-6)
  queries = embedder.embed_queries(texts)
  np.testing.assert_allclose(queries, expected['queries'], atol=2e-6)
  monkeypatch.setattr(backend, 'is_cpu', lambda: False)
  kernels = _embedder(folder).embed_texts(texts)
  np.testing.assert_allclose(kernels, passages, atol=2e-6)


def _edited(tmp_path, **fields):
  """A config.json with other fields."""
  folder = modern_berts.save(tmp_path / 'edited', 'old')
  file = folder / 'config.json'
  stated = json.loads(file.read_text()) | fields
  file.write_text(json.dumps(stated))
  return file


def _read(file, models=bert_checkpoint.MODELS):
  return bert_checkpoint.read_config(file, models)


def test_both_spellings_and_their_defaults(tmp_path):
  old = _read(_edited(tmp_path / 'a'))
  assert old.layer_types == modern_bert.ModernBertConfig().layer_types[:5]
  bases = old.global_rope_theta, old.local_rope_theta
  assert bases == (160_000, 10_000) and old.local_attention == 128
  fields = {'local_rope_theta': None, 'global_rope_theta': 77.0}
  other = _read(_edited(tmp_path / 'b', sliding_window=9, **fields))
  assert other.local_rope_theta == 77 and other.local_attention == 18
  file = tmp_path / 'config.json'
  file.write_text('{"model_type": "modernbert"}')
  assert _read(file) == modern_bert.ModernBertConfig()


def test_the_default_is_modern_bert_base():
  config = modern_bert.ModernBertConfig()
  ids = np.zeros((1, 4), np.int32)
  shapes = jax.eval_shape(
    bert_family.module(config).init, jax.random.key(0), ids, ids > 0
  )
  sizes = [math.prod(x.shape) for x in jax.tree.leaves(shapes)]
  assert sum(sizes) == 149_014_272


REFUSED = [
  ('hidden_activation', 'tanh'),
  ('classifier_activation', 'tanh'),
  ('classifier_pooling', 'max'),
  ('rope_scaling', {'rope_type': 'yarn', 'factor': 2.0}),
  ('rope_parameters', {'rope_type': 'default', 'rope_theta': 1e4}),
  ('rope_parameters', {'full_attention': {'rope_type': 'linear'}}),
  ('rope_parameters', 5),
  ('rope_parameters', {'full_attention': 5}),
  ('global_rope_theta', 'x'),
  ('layer_types', ['full_attention']),
  ('layer_types', 5 * ['chunked_attention']),
  ('layer_types', 5),
  ('global_attn_every_n_layers', 0),
  ('num_hidden_layers', 'many'),
  ('local_attention', 0),
  ('sliding_window', 1.5),
  ('norm_bias', 'no'),
  ('head_dim', 4),
  ('is_decoder', True),
  ('quantization_config', {'quant_method': 'gptq'}),
]


@pytest.mark.parametrize(('field', 'value'), REFUSED)
def test_what_is_not_supported_is_refused_by_name(tmp_path, field, value):
  file = _edited(tmp_path, **{field: value})
  with pytest.raises(ValueError) as error:
    _read(file)
  said = str(error.value)
  assert field in said and str(file) in said and '\n' not in said


def test_where_bert_is_needed_it_is_refused(folder):
  with pytest.raises(ValueError, match='model_type'):
    bert_checkpoint.load_mlm(folder)


@pytest.mark.parametrize('name', ['model.layers.1.mlp.Wi.weight', 'head.x'])
def test_tensors_are_checked_by_name(tmp_path, name):
  folder = modern_berts.save(tmp_path / 'a', 'old')
  config = _read(folder / 'config.json')
  drawn = modern_berts.tensors(config.vocab_size, False, 0)
  if drawn.pop(name, None) is None:
    drawn[name] = np.zeros(1)
  with pytest.raises(ValueError, match=name.removeprefix('model.')):
    bert_checkpoint.convert(drawn, config, 'test')


@pytest.mark.slow
@pytest.mark.skipif(
  not PYTHON, reason='SENTENCE_TRANSFORMERS_PYTHON is not set'
)
def test_transformers_computes_the_expected_values():
  command = PYTHON, '-m', 'tests.retrieval.nn.modern_berts'
  done = subprocess.run(command, capture_output=True, check=True)
  computed = json.loads(done.stdout)
  assert computed.keys() == EXPECTED.keys()
  for kind, values in computed.items():
    assert values.pop('ids') == EXPECTED[kind]['ids']
    for name, value in values.items():
      for row, expected in zip(value, EXPECTED[kind][name], strict=True):
        np.testing.assert_allclose(row, expected, atol=1e-6)
