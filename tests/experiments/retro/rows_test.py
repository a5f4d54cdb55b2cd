# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows that read other neighbors, against plain evaluations."""

import json

import pytest

from experiments.retro import evaluate as retro_evaluate
from retrieval.index import neighbors as neighbors_lib, vectors as vectors_lib
from retrieval.search import retriever as retriever_lib
from tests.experiments.retro import tiny_config, tiny_retro
from tests.retrieval.index import neighbors_test
from tests.retro_jax.data import tiny_data


@pytest.fixture(scope='module')
def root(tmp_path_factory):
  root = tiny_data.make(tmp_path_factory.mktemp('data'))
  data, letters = tiny_retro.Folder(root), neighbors_test.LetterEmbedder()
  for split in ('train', 'valid'):
    vectors_lib.build_vector_store(
      data.path(f'vectors-{split}'), data.chunks(split), letters
    )
  return root


@pytest.fixture(autouse=True)
def runs(root, monkeypatch):
  tiny_retro.load_from(root, monkeypatch)


def _evaluated(workdir, *rows, **settings):
  """The rows of evaluation.json by their names."""
  settings = {'shuffled': False, 'max_documents': 4} | settings
  evaluate = tiny_retro.evaluate_one(rows=rows, **settings)
  retro_evaluate.evaluate(tiny_config.of(), str(workdir), evaluate)
  content = json.loads((workdir / 'evaluation.json').read_text())
  return {row['name']: row for row in content['rows']}


def test_rows_read_other_neighbors(tmp_path):
  workdir = tmp_path / 'retro'
  workdir.mkdir()
  options = (
    *('share=1', 'share=.4', 'rank=2', 'rank=3', 'k=3'),
    *('part=neighbor', 'part=continuation', 'part=full'),
  )
  expected = _evaluated(workdir, *options)
  assert list(expected) == ['RETRO, k=1', 'RETRO off', *options]
  assert expected['share=.4']['share'] == 0.4
  assert expected['k=3']['num_neighbors'] == 3
  assert expected['k=3']['minus_off']['mean'] == pytest.approx(
    expected['k=3']['bits_per_byte'] - expected['RETRO off']['bits_per_byte']
  )
  measured = {expected[x]['bits_per_byte'] for x in options}
  assert len(measured) == len(options)
  reads = {x: expected[x]['num_neighbors'] for x in options}
  assert reads['rank=3'] == 3 and reads['k=3'] == 3 and reads['share=1'] == 1
  assert expected['part=full']['bits_per_byte'] == pytest.approx(
    expected['RETRO, k=1']['bits_per_byte']
  )


def test_sources_of_neighbors(root, tmp_path):
  data = tiny_retro.Folder(root, 'random')
  neighbors_lib.build_neighbor_store(
    data.neighbors_path('valid'),
    data.chunks('valid'),
    data.chunks('train'),
    retriever_lib.Random(data.chunks('train'), 0),
    k=3,
  )
  rows = _evaluated(tmp_path / 'retro', 'source=random')
  plain = _evaluated(tmp_path / 'retro', source='random')
  bits = rows['source=random']['bits_per_byte']
  assert plain['RETRO, k=1']['bits_per_byte'] == bits
  assert rows['RETRO, k=1']['bits_per_byte'] != bits


@pytest.mark.parametrize(
  'row', ['k', 'k=0', 'j=2', 'k=2,k=3', 'k=2,rank=2', 'rank=2,retrieval=off']
)
def test_rows_of_another_form_are_refused(row):
  with pytest.raises(ValueError):
    tiny_retro.evaluate_one(rows=(row,))
