# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Differences of rows with their seeds, and their files."""

import json
import math

import numpy as np
import pytest

from experiments.engine import evaluations
from retrieval.questions import bootstrap


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


def test_values_of_bytes_are_nats_and_totals_bits(tmp_path):
  size, rng = np.arange(3, 15), np.random.default_rng(0)
  one, two = (_row(x, rng.random((2, 12)), size) for x in ('one', 'two'))
  minus = evaluations.differences([one, two])
  less = minus['two']['one']['']
  for i, x in enumerate(less.pop('of_seeds')):
    assert x == pytest.approx(two.of_seeds()[i] - one.of_seeds()[i])
    nats = two.values[''][i].sum() - one.values[''][i].sum()
    assert x == pytest.approx(nats / math.log(2) / size.sum())
  values = (two.values[''] - one.values['']).mean(0)
  interval = bootstrap.bootstrap(values, size * math.log(2))
  assert less == pytest.approx(vars(interval))
  turned = minus['one']['two']['']
  assert turned['low'] == -less['high'] and turned['mean'] == -less['mean']
  other = _row('other', one.values[''], size + 1)
  with pytest.raises(ValueError, match='different items'):
    one.minus(other)
  path = evaluations.write(tmp_path / 'table.json', [one, two], step=3)
  assert json.loads(path.read_text()) == {
    'rows': [{'name': 'one'}, {'name': 'two'}],
    'step': 3,
  }
  with np.load(tmp_path / 'table.npz') as arrays:
    assert {*arrays} == {'one', 'two', 'bytes'}
    np.testing.assert_array_equal(arrays['one'], one.values[''])
