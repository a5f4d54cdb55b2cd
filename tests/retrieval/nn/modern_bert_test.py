# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""ModernBERT against transformers and sentence-transformers, and what is refused."""

import functools
import json
import math
import pathlib

import jax
import numpy as np
import pytest
import safetensors.numpy

from retrieval.kernels import backend
from retrieval.nn import bert_checkpoint, bert_family, embedders, modern_bert
from retrieval.search import rerank
from tests.retrieval.nn import modern_berts

DATA = pathlib.Path(__file__).parents[2] / 'data'
EXPECTED = json.loads((DATA / 'modern_bert.json').read_text())


@functools.partial(jax.jit, static_argnames='config')
def _hidden(config, params, ids, mask, positions=None):
  model = bert_family.module(config)
  return model.apply({'params': params}, ids, mask, None, positions).hidden


@pytest.fixture(scope='module', params=modern_berts.KINDS)
def kind(request):
  return request.param


@pytest.fixture(scope='module')
def folder(kind, tmp_path_factory):
  return modern_berts.save(tmp_path_factory.mktemp('modern') / kind, kind)


@pytest.fixture(scope='module')
def loaded(folder):
  return bert_checkpoint.load_mlm(folder, bert_checkpoint.MODELS)[:2]


def test_hidden_states_equal_transformers(loaded, kind):
  hidden = _hidden(*loaded, *modern_berts.rows())
  for row, length, expected in zip(
    hidden, modern_berts.LENGTHS, EXPECTED[kind]['hidden'], strict=True
  ):
    row = row[: length : modern_berts.STRIDE]
    np.testing.assert_allclose(row, expected, atol=2e-6, rtol=0)
  last = np.array(modern_berts.LENGTHS)[:, None] - 1
  some = _hidden(*loaded, *modern_berts.rows(), last)[:, 0]
  np.testing.assert_allclose(some, hidden[np.arange(4), last[:, 0]], atol=2e-6)


@pytest.mark.parametrize('is_cpu', [True, False])
def test_a_row_in_small_blocks_equals_transformers(
  loaded, kind, is_cpu, monkeypatch
):
  """Without padding; the last block is not full."""
  monkeypatch.setattr(modern_bert, '_QUERIES', 200)
  monkeypatch.setattr(backend, 'is_cpu', lambda: is_cpu)
  _hidden.clear_cache()
  ids, mask = (x[1:2, : modern_berts.LENGTHS[1]] for x in modern_berts.rows())
  row = _hidden(*loaded, ids, mask)[0, :: modern_berts.STRIDE]
  expected = EXPECTED[kind]['hidden'][1]
  np.testing.assert_allclose(row, expected, atol=2e-6, rtol=0)
  _hidden.clear_cache()


def test_tokens_equal_transformers(folder, kind):
  """A special token in a text is text, as with split_special_tokens=True."""
  tokenizer = embedders.read_tokenizer(folder, {}, 1000)
  encodings = tokenizer.encode_batch(modern_berts.TEXTS)
  assert [x.ids for x in encodings] == EXPECTED[kind]['ids']


def test_vectors_equal_sentence_transformers(folder, kind):
  texts = [x for x in modern_berts.TEXTS if '[MASK]' not in x]
  expected = EXPECTED[kind]
  one = {'dtype': 'float32', 'devices': jax.devices()[:1]}
  embedder = embedders.Embedder.load(folder, **one)
  assert embedder.max_length == 64
  passages = embedder.embed_texts(texts)
  np.testing.assert_allclose(passages, expected['passages'], atol=2e-6)
  queries = embedder.embed_queries(texts)
  np.testing.assert_allclose(queries, expected['queries'], atol=2e-6)


def test_scores_equal_sentence_transformers(kind, tmp_path):
  reranker = rerank.load(modern_berts.save(tmp_path / 'score', kind, 1))
  queries, passages = zip(*modern_berts.PAIRS, strict=True)
  scores = reranker.score(queries, [[x] for x in passages])
  np.testing.assert_allclose(scores, np.c_[EXPECTED[kind]['scores']], atol=2e-6)


def _read(tmp_path, **fields):
  """Read the config of `old` with other fields."""
  stated = {'model_type': 'modernbert', 'num_hidden_layers': 5}
  file = tmp_path / 'config.json'
  file.write_text(json.dumps(stated | modern_berts.KINDS['old'] | fields))
  return bert_checkpoint.read_config(file, bert_checkpoint.MODELS)


def test_statements_and_their_defaults(tmp_path):
  config = _read(tmp_path, global_attn_every_n_layers=2)
  local = [config.is_local(i) for i in range(config.num_layers)]
  assert local == [False, True, False, True, False]
  file = tmp_path / 'config.json'
  file.write_text('{"model_type": "modernbert"}')
  base = modern_bert.ModernBertConfig()
  assert bert_checkpoint.read_config(file, bert_checkpoint.MODELS) == base


def test_the_default_is_modern_bert_base():
  layout = bert_checkpoint.encoder_layout(modern_bert.ModernBertConfig())
  assert sum(math.prod(shape) for _, _, shape in layout) == 149_014_272


REFUSED = [
  ('hidden_activation', 'tanh'),
  ('classifier_activation', 'tanh'),
  ('classifier_pooling', 'max'),
  ('rope_scaling', {'rope_type': 'yarn', 'factor': 2.0}),
  ('rope_parameters', {'rope_type': 'default', 'rope_theta': 1e4}),
  ('rope_parameters', {'full_attention': {'rope_type': 'linear'}}),
  ('rope_parameters', 5),
  ('global_rope_theta', 'x'),
  ('layer_types', ['full_attention']),
  ('layer_types', 5 * ['chunked_attention']),
  ('global_attn_every_n_layers', 0),
  ('num_hidden_layers', 'many'),
  ('local_attention', 0),
  ('norm_bias', True),
  ('sliding_window', 9),
  ('head_dim', 4),
  ('quantization_config', {'quant_method': 'gptq'}),
]


@pytest.mark.parametrize(('field', 'value'), REFUSED)
def test_what_is_not_supported_is_refused_by_name(tmp_path, field, value):
  with pytest.raises(ValueError) as error:
    _read(tmp_path, **{field: value})
  said = str(error.value)
  assert field in said and str(tmp_path) in said and '\n' not in said


@pytest.mark.parametrize('name', ['layers.1.mlp.Wi.weight', 'head.x'])
def test_tensors_are_checked_by_name(folder, name):
  tensors = safetensors.numpy.load_file(folder / 'model.safetensors')
  if tensors.pop(f'model.{name}', None) is None:
    tensors[name] = np.zeros(1)
  config, _, _ = bert_checkpoint.load_mlm(folder, bert_checkpoint.MODELS)
  with pytest.raises(ValueError, match=name):
    bert_checkpoint.convert(tensors, config, 'test')
