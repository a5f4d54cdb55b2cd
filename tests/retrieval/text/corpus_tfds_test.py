# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Data sets of TFDS as corpora, without TensorFlow."""

import sys

import numpy as np
import pytest

from retrieval.text import corpus
from tests.retrieval.readers import tiny_tfds
from tests.retrieval.text import json_corpus

Document = corpus.Document


def _corpus(path, **fields):
  return json_corpus.opened('tfds', 'tiny_rows', data_dir=path, **fields)


@pytest.fixture(scope='module')
def tfds_dir(tmp_path_factory):
  features = lambda f: {  # noqa: E731
    'id': np.int64,
    'title': f.Text(),
    'text': f.Text(),
  }
  rows = [
    {'id': i, 'title': f'T{i}', 'text': f' text \u00e9 {i}\n'}
    for i in range(300)
  ]
  splits = {'train': rows, 'test': rows[:2]}
  return tiny_tfds.prepare(tmp_path_factory.mktemp('tfds'), features, splits)


def test_tfds(tfds_dir):
  documents = [*_corpus(tfds_dir)]
  assert len(documents) == 300
  assert sorted(documents, key=lambda d: int(d.id)) == [
    Document(str(i), f'T{i}', f' text \u00e9 {i}\n') for i in range(300)
  ]
  few = [*_corpus(tfds_dir, split='train[:5]')]
  assert few == documents[:5]
  by_place = [*_corpus(tfds_dir, split='test', id_field='')]
  assert by_place[1].id == 'tiny_rows[test]:1'
  assert 'tensorflow' not in sys.modules


def test_tfds_fingerprint(tfds_dir):
  prints = {
    _corpus(tfds_dir, **fields).fingerprint()
    for fields in ({}, {}, {'split': 'test'}, {'id_field': ''})
  }
  assert len(prints) == 3
