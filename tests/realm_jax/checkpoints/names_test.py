# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The name map against lists of the real checkpoints' tensors.

tf_to_hf.tsv.gz: bundle, TensorFlow's name and shape, the name in RealmForOpenQA,
whether it is transposed. hf_state_dict.txt.gz: the tensors of the port's classes.
"""

import gzip
import json
import pathlib

import pytest

from realm_jax.checkpoints import names
from retrieval.nn import bert

DATA = pathlib.Path(__file__).parents[2] / 'data' / 'realm'
N = 13_353_718
RELEASED = names.Sizes(bert=bert.BertConfig(), num_blocks=N)
IN_OPEN_QA = {'A': 'reader.', 'B': 'embedder.', 'D': ''}


def _rows():
  text = gzip.decompress((DATA / 'tf_to_hf.tsv.gz').read_bytes()).decode()
  for line in text.splitlines():
    bundle, tf_name, shape, hf_name, transposed = line.split('\t')
    if bundle != 'C':  # the vectors of blocks, no parameters
      yield (
        bundle,
        tf_name,
        tuple(json.loads(shape)),
        hf_name,
        transposed == '1',
      )


def _variables(bundle):
  return {row[1]: row[2] for row in _rows() if row[0] == bundle}


def _tensors(bundle):
  """TensorFlow's name -> the port's tensor, by our map."""
  tensors = names.layout(names.BUNDLES[bundle], RELEASED)
  named = {names.tf_name(bundle, t.name): t for t in tensors}
  return {name: t for name, t in named.items() if name is not None}


def test_every_row_of_the_table_holds():
  rows = list(_rows())
  assert len(rows) == 830
  tensors = {bundle: _tensors(bundle) for bundle in IN_OPEN_QA}
  for bundle, tf_name, shape, hf_name, transposed in rows:
    tensor = tensors[bundle].pop(tf_name)
    assert IN_OPEN_QA[bundle] + tensor.name == hf_name
    assert tf_name.endswith('/kernel') == transposed
    assert tensor.shape == (shape[::-1] if transposed else shape)
  assert not any(tensors.values())  # the map has no row more


@pytest.mark.parametrize('bundle', 'ABD')
def test_bundles_are_told_apart_and_measured(bundle):
  variables = _variables(bundle)
  assert names.find_bundle(variables) == bundle
  sizes = names.bundle_sizes(bundle, variables)
  assert sizes.bert == bert.BertConfig(activation='gelu_tanh')
  assert (sizes.projection_size, sizes.span_hidden_size) == (128, 256)


def _state_dicts():
  text = gzip.decompress((DATA / 'hf_state_dict.txt.gz').read_bytes()).decode()
  for part in text.split('### ')[1:]:
    hf_class, *lines = part.splitlines()
    rows = (line.split(' ', 1) for line in lines)
    yield hf_class, {name: tuple(json.loads(shape)) for name, shape in rows}


def test_every_tensor_of_every_class_is_listed():
  found = dict(_state_dicts())
  assert sorted(found) == sorted(names.CLASSES)
  for hf_class, tensors in found.items():
    layout = names.layout(hf_class, RELEASED)
    assert {t.name: t.shape for t in layout} == tensors
    assert names.find_class(tensors) == hf_class


def test_unknown_tensors_are_refused():
  with pytest.raises(ValueError, match='expected those of one of'):
    names.find_class(['bert.pooler.dense.weight'])
  with pytest.raises(ValueError, match='expected those of a REALM or ORQA'):
    names.find_bundle(['resnet/conv1'])
  variables = _variables('A')
  del variables['bert/embeddings/word_embeddings']
  with pytest.raises(
    ValueError, match='bert/embeddings/word_embeddings is mis'
  ):
    names.bundle_sizes('A', variables)


def test_the_optimizer_alone_is_skipped():
  others = (
    'reader/dense/bias/adam_m',
    'AdamWeightDecayOptimizer_1/reader/dense/bias',
    'global_step',
    '_CHECKPOINTABLE_OBJECT_GRAPH',
  )
  assert all(map(names.is_skipped, others))
  assert not any(names.is_skipped(row[1]) for row in _rows())
