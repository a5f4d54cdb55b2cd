# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Cross-encoders against sentence-transformers, and folders that are refused."""

import json
import pathlib

import numpy as np
import pytest
import safetensors.numpy

from retrieval.search import rerank
from tests.retrieval.nn import cross_folders, sentence_folders

DATA = pathlib.Path(__file__).parents[2] / 'data'
EXPECTED = json.loads((DATA / 'cross_scores.json').read_text())
QUERIES, PASSAGES = zip(*cross_folders.PAIRS, strict=True)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  return cross_folders.save(tmp_path_factory.mktemp('cross') / 'bert', 'mean')


@pytest.mark.parametrize('model', cross_folders.MODELS)
def test_scores_equal_sentence_transformers(tmp_path, model):
  reranker = rerank.load(cross_folders.save(tmp_path / model, model))
  assert isinstance(reranker, rerank.TextScorer)
  scores = reranker.score(QUERIES, [[x] for x in PASSAGES])
  np.testing.assert_allclose(scores, np.c_[EXPECTED[model]], atol=1e-5)


def test_scores_are_those_of_single_pairs(folder):
  reranker = rerank.load(folder)
  passages = [list(PASSAGES[:2]), [], ['', 'river']]
  scores = reranker.score(QUERIES[:3], passages)
  assert [len(row) for row in scores] == [2, 0, 2]
  assert all(row.dtype == np.float32 for row in scores)
  for query, texts, row in zip(QUERIES, passages, scores, strict=False):
    for text, score in zip(texts, row, strict=True):
      [single] = reranker.score([query], [[text]])
      np.testing.assert_allclose(single, [score], atol=1e-5)
  assert reranker.score([], []) == []


def test_the_fingerprint_is_that_of_parameters_and_lengths(folder, tmp_path):
  first = rerank.load(folder).fingerprint
  assert first == rerank.load(folder).fingerprint
  other = cross_folders.save(tmp_path / 'other', 'mean')
  assert first == rerank.load(other).fingerprint
  sentence_folders.edit(other / 'tokenizer_config.json', model_max_length=9)
  shorter = rerank.load(other).fingerprint
  tensors = safetensors.numpy.load_file(other / 'model.safetensors')
  tensors['classifier.bias'] = tensors['classifier.bias'] + 1
  safetensors.numpy.save_file(tensors, other / 'model.safetensors')
  assert len({first, shorter, rerank.load(other).fingerprint}) == 3


@pytest.mark.parametrize(
  ('name', 'fields'),
  [
    ('config_sentence_transformers.json', {'model_type': 'SparseEncoder'}),
    ('config_sentence_transformers.json', {'default_prompt_name': 'query'}),
    ('sentence_bert_config.json', {'transformer_task': 'text-generation'}),
  ],
)
def test_what_is_not_supported_is_named(tmp_path, name, fields):
  folder = cross_folders.save(tmp_path / 'a', 'mean')
  sentence_folders.edit(folder / name, **fields)
  with pytest.raises(ValueError, match=next(iter(fields))):
    rerank.load(folder)


def test_other_folders_are_refused(folder, tmp_path):
  with pytest.raises(FileNotFoundError):
    rerank.load(tmp_path / 'none')
  embedder = sentence_folders.save(tmp_path / 'embedder', 'mean')
  with pytest.raises(ValueError, match='modules.json'):
    rerank.load(embedder)
  (embedder / 'modules.json').unlink()
  (embedder / 'config_sentence_transformers.json').unlink()
  with pytest.raises(ValueError, match='classifier'):
    rerank.load(embedder)
  labels = cross_folders.save(tmp_path / 'labels', 'mean')
  tensors = safetensors.numpy.load_file(labels / 'model.safetensors')
  for name in ('classifier.weight', 'classifier.bias'):
    tensors[name] = np.concatenate([tensors[name]] * 2)
  safetensors.numpy.save_file(tensors, labels / 'model.safetensors')
  with pytest.raises(ValueError, match='classifier'):
    rerank.load(labels)
