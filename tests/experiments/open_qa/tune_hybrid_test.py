# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The weight of hybrid retrieval chosen from run files."""

import json
import types

import numpy as np
import pytest

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


@pytest.fixture
def run(monkeypatch, capsys):
  """Runs the command; returns what it printed."""

  def run(*stems, **values):
    defaults = {'weight': [0.0, 0.5, 1.0], 'measure': 'recall@1', 'output': ''}
    defaults |= {'vectors': 'dense', 'words': 'bm25'}
    given = types.SimpleNamespace(
      FLAGS=types.SimpleNamespace(**defaults | values)
    )
    monkeypatch.setattr(tune_hybrid, 'flags', given)
    tune_hybrid.main(['tune_hybrid', *map(str, stems)])
    return capsys.readouterr().out

  return run


def test_command(stem, run, tmp_path):
  output = tmp_path / 'tuned.json'
  printed = run(stem, output=str(output))
  assert printed.splitlines()[-1] == (
    'recall@1: 50.0 at --config.evaluate.words_weight=0.5, 50.0 by ranks.'
  )
  assert 'dev: 2 questions; percent' in ' '.join(printed.split())
  found = json.loads(output.read_text())
  assert found['chosen'] == 0.5
  assert found['means'] == {'ranks': 0.5, '0': 0.0, '0.5': 0.5, '1': 0.5}
  measures = found['sets']['dev']
  means = [measures[weight]['MRR']['mean'] for weight in ('0', '1')]
  assert means == pytest.approx([5 / 12, 3 / 4])


def test_bad_input_is_refused(stem, run):
  with pytest.raises(
    ValueError, match='No question set: expected the start of'
  ):
    run()
  with pytest.raises(
    ValueError, match=r"--measure=x: expected one of .'recall@1'"
  ):
    run(stem, measure='x')
  with pytest.raises(FileNotFoundError, match=r'devx\.dense\.run'):
    run(f'{stem}x')
  with pytest.raises(ValueError, match='a folder; expected the name of a file'):
    run(stem, output=str(stem.parent))


def test_a_weight_at_an_end_is_a_run_alone(stem):
  runs = [
    trec_files.read_run(f'{stem}.{kind}.run') for kind in ('dense', 'bm25')
  ]
  found = tune_hybrid.ranked(runs)
  ids, scores = found.lists[0]
  own = found.run_of((ids, scores))
  for question, row in runs[0].items():
    assert [x for x, _ in own[question]] == [x for x, _ in row]
  qrels = trec_files.read_qrels(f'{stem}.qrels')
  values = tune_hybrid.measure(found, qrels, [0.0, 1.0])
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
  best, means = tune_hybrid.choose(values, 'MRR')
  assert best == '0.1' and means['0.1'] == pytest.approx(0.4)
