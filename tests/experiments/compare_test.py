# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables of evaluations in one table, against differences of their values."""

import json

import numpy as np
import pytest

from experiments import compare
from experiments.engine import evaluations
from experiments.tables import intervals
from retrieval.questions import bootstrap

_SIZE = np.arange(3, 15)


@pytest.fixture
def runs(tmp_path, monkeypatch):
  """Two seeds of bits per byte and two tables of recall."""
  monkeypatch.setattr(bootstrap, 'LEAST', 2)
  rng = np.random.default_rng(0)
  for seed in (0, 1):
    rows = [
      evaluations.Row(name=x, values={'': rng.random(12)}, num_bytes=_SIZE)
      for x in ('RETRO, k=2', 'RETRO off')
    ]
    evaluations.write(tmp_path / f'retro{seed}' / 'evaluation.json', rows)
    rows = [
      evaluations.Row(
        name=f'{x}, q.jsonl, dpr',
        values={k: rng.random(9) for k in ('recall@1', 'recall@5')},
      )
      for x in ('before', 'BM25')
    ]
    path = tmp_path / f'realm{seed}' / 'evaluation.json'
    evaluations.write(path, rows, blocks='a')
  return tmp_path


def _values(path, name):
  with np.load(path / 'evaluation.npz') as arrays:
    return arrays[name]


def _check(less, one, two, weights=None):
  """Compares a difference with the values [seeds, items] of both sides."""
  size = one.shape[1] if weights is None else weights.sum()
  of_seeds = (one - two).sum(1) / size
  assert less['of_seeds'] == pytest.approx(of_seeds)
  interval = bootstrap.bootstrap((one - two).mean(0), weights)
  assert [less[x] for x in ('mean', 'low', 'high')] == pytest.approx(
    [interval.mean, interval.low, interval.high]
  )


def test_bits_per_byte_with_seeds(runs, tmp_path, capsys):
  texts = [f'on={runs}/retro{i}' for i in (0, 1)]
  texts += [f'off={runs}/retro{i}/evaluation.json:RETRO off' for i in (0, 1)]
  on, off = compare.compare(str(tmp_path / 'out'), texts)['rows']
  values = {
    row: np.stack([_values(runs / f'retro{i}', row) for i in (0, 1)])
    for row in ('RETRO, k=2', 'RETRO off')
  }
  weights = _SIZE * np.log(2)
  _check(off['minus']['on'], *[*values.values()][::-1], weights)
  _check(on['minus']['off'], *values.values(), weights)
  for row, x in zip((on, off), values.values(), strict=True):
    expected = x.sum(1) / weights.sum()
    assert row['totals']['of_seeds'] == pytest.approx(expected)
    assert row['totals']['mean'] == pytest.approx(expected.mean())
  content = json.loads((tmp_path / 'out' / compare.FILE).read_text())
  assert content == {'rows': [on, off], 'tables': texts}
  with np.load(tmp_path / 'out' / 'compare.npz') as arrays:
    assert {*arrays} == {'on', 'off', 'bytes'}
    np.testing.assert_array_equal(arrays['off'], values['RETRO off'])
  of_all = intervals.of_values(
    values['RETRO off'] - values['RETRO, k=2'], weights
  )
  assert '{:+.4f} {:+.4f}'.format(*of_all.interval()) in capsys.readouterr().out


def test_measures_of_question_sets(runs, tmp_path):
  texts = [f'{x}={runs}/realm0:{x}' for x in ('before', 'BM25')]
  before, words = compare.compare(str(tmp_path), texts)['rows']
  for k in (1, 5):
    one, two = (
      _values(runs / 'realm0', f'{x}, q.jsonl, dpr, recall@{k}')
      for x in ('BM25', 'before')
    )
    measure = f'recall@{k}'
    less = words['minus']['before']['q.jsonl, dpr'][measure]
    _check(less, one[None], two[None])
    totals = before['totals']['q.jsonl, dpr'][measure]
    assert totals['mean'] == pytest.approx(two.mean())
  with np.load(tmp_path / 'compare.npz') as arrays:
    assert 'BM25, q.jsonl, dpr, recall@5' in arrays


@pytest.mark.parametrize(
  'texts',
  [
    [],
    ['={0}/retro0'],
    ['a'],
    ['a={0}/none'],
    ['a={0}/retro0:RETRO on'],
    ['a={0}/retro0', 'b={0}/realm0:BM25'],  # other measures
    ['a={0}/realm0:BM25', 'b={0}/other:BM25'],  # other blocks
    ['a={0}/retro0', 'a={0}/longer'],  # other items of a seed
    ['a={0}/retro0', 'b={0}/longer'],
    ['a={0}/retro0'] * 2 + ['b={0}/retro1'] * 3,
  ],
)
def test_other_rows_are_refused(runs, tmp_path, texts):
  values = np.ones(12)
  row = evaluations.Row(
    name='x', values={'': values}, num_bytes=np.full(12, 20)
  )
  evaluations.write(runs / 'longer' / 'evaluation.json', [row])
  names = [f'BM25, q.jsonl, dpr, recall@{k}' for k in (1, 5)]
  row = evaluations.Row(name='', values=dict.fromkeys(names, values[:9]))
  evaluations.write(runs / 'other' / 'evaluation.json', [row], blocks='b')
  with pytest.raises(ValueError) as error:
    compare.compare(str(tmp_path), [text.format(runs) for text in texts])
  assert '\n' not in str(error.value)


def _row(name, values, num_bytes=None):
  return evaluations.Row(
    name=name, values={'': np.array(values)}, num_bytes=num_bytes
  )


def test_seeds_are_paired_by_number_or_with_one():
  a, b = _row('a', [[1.0, 3], [2, 6]]), _row('b', [[0.0, 0], [1, 1]])
  assert a.minus(b)['of_seeds'] == [2, 3]
  assert a.minus(_row('b', [1.0, 2]))['of_seeds'] == [0.5, 2.5]
  assert _row('b', [1.0, 2]).minus(a)['of_seeds'] == [-0.5, -2.5]
  with pytest.raises(ValueError, match='Row c has 3 runs and a 2'):
    _row('c', np.ones((3, 2))).minus(a)
  with pytest.raises(ValueError, match='different items'):
    _row('c', np.ones(3)).minus(a)
