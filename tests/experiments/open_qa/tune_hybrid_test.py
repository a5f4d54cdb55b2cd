# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The weight of hybrid retrieval chosen from run files."""

import json

import numpy as np
import pytest

from experiments.engine import hybrid_weights
from experiments.open_qa import tune_hybrid
from retrieval.questions import trec_files


@pytest.fixture
def stem(tmp_path):
  """Two questions; only a mixture ranks the relevant block of the first one first."""
  dense = {q: [('a', 0.9), ('b', 0.8), ('c', 0.1)] for q in ('q1', 'q2')}
  words = {
    'q1': [('d', 30.0), ('b', 25.0), ('a', 2.0)],
    'q2': [('c', 5.0), ('e', 1.0)],
  }
  for kind, run in (('dense', dense), ('bm25', words)):
    trec_files.write_run(tmp_path / f'dev.{kind}.run', run, kind)
  trec_files.write_qrels(
    tmp_path / 'dev.qrels', {'q1': {'b': 1, 'a': 0}, 'q2': {'c': 1}}
  )
  return tmp_path / 'dev'


def _run(folder, *stems, **fields):
  wanted = tune_hybrid.TuneHybrid(
    sets=tuple(map(str, stems)),
    **{'weights': (0.0, 0.5, 1.0), 'measure': 'recall@1'} | fields,
  )
  tune_hybrid.tune_hybrid(None, str(folder), wanted)


def test_command(stem, tmp_path, capsys):
  _run(tmp_path, stem)
  assert capsys.readouterr().out.splitlines()[-1] == (
    'recall@1: 50.0 at --config.evaluate.words_weight=0.5, 50.0 by ranks.'
  )
  found = json.loads((tmp_path / hybrid_weights.FILE).read_text())
  assert found['chosen'] == 0.5
  assert found['means'] == {'ranks': 0.5, '0': 0.0, '0.5': 0.5, '1': 0.5}
  measures = found['sets']['dev']
  means = [measures[weight]['MRR']['mean'] for weight in ('0', '1')]
  assert means == pytest.approx([5 / 12, 3 / 4])


def test_a_weight_at_an_end_is_a_run_alone(stem):
  runs = [
    trec_files.read_run(f'{stem}.{kind}.run') for kind in ('dense', 'bm25')
  ]
  qrels = trec_files.read_qrels(f'{stem}.qrels')
  values = tune_hybrid.measure(runs, qrels, [0.0, 1.0])
  np.testing.assert_allclose(values['0']['MRR'], [1 / 2, 1 / 3])
  np.testing.assert_allclose(values['1']['MRR'], [1 / 2, 1])


def test_the_smallest_of_equal_weights_is_chosen():
  values = [
    {
      'ranks': {'MRR': np.array([9.0])},
      '0': {'MRR': np.array([0.2, 0.4])},
      '0.1': {'MRR': np.array([0.5, 0.3])},
      '0.9': {'MRR': np.array([0.6, 0.2])},
    }
  ] * 2
  best, means = hybrid_weights.choose(values, 'MRR')
  assert best == '0.1' and means['0.1'] == pytest.approx(0.4)
