# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Data sets of TFDS as corpora, without TensorFlow."""

import sys

import numpy as np
import pytest

from retrieval.text import corpus

Document = corpus.Document


def _corpus(name, path, **fields):
  config = corpus.CorpusConfig(kind='tfds', path=name, data_dir=path, **fields)
  return corpus.Corpus(config)


def _read(name, path, **fields):
  return list(_corpus(name, path, **fields))


@pytest.fixture(scope='module')
def tfds_dir(tmp_path_factory):
  """A prepared data set of TFDS, written without TensorFlow."""
  tfds = pytest.importorskip('tensorflow_datasets')

  class TinyPages(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version('1.0.0')

    def _info(self):
      features = {
        'id': np.int64,
        'title': tfds.features.Text(),
        'text': tfds.features.Text(),
      }
      return tfds.core.DatasetInfo(
        builder=self, features=tfds.features.FeaturesDict(features)
      )

    def _split_generators(self, dl_manager):
      return {
        'train': self._generate_examples(300),
        'test': self._generate_examples(2),
      }

    def _generate_examples(self, count):
      for i in range(count):
        yield i, {'id': i, 'title': f'T{i}', 'text': f' text \u00e9 {i}\n'}

  path = tmp_path_factory.mktemp('tfds')
  TinyPages(data_dir=path, file_format='array_record').download_and_prepare()
  return str(path)


def test_tfds(tfds_dir):
  documents = _read('tiny_pages', tfds_dir)
  assert len(documents) == 300
  assert sorted(documents, key=lambda d: int(d.id)) == [
    Document(str(i), f'T{i}', f' text \u00e9 {i}\n') for i in range(300)
  ]
  few = _read('tiny_pages', tfds_dir, split='train[:5]')
  assert few == documents[:5]
  by_place = _read('tiny_pages', tfds_dir, split='test', id_field='')
  assert by_place[1].id == 'tiny_pages[test]:1'
  assert 'tensorflow' not in sys.modules


def test_tfds_fingerprint(tfds_dir):
  prints = {
    _corpus('tiny_pages', tfds_dir, **fields).fingerprint()
    for fields in ({}, {}, {'split': 'test'}, {'id_field': ''})
  }
  assert len(prints) == 3
