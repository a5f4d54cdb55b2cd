# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Differences of raw values and of intervals, over items and seeds."""

import json
import math

import numpy as np
import pytest

from experiments.tables import evidence, intervals


def _raw(file, on, seeds=2, num_bytes=(2, 4)):
  off = np.arange(2.0 * seeds).reshape(seeds, 2)
  np.savez(file, off=off, on=off - on, bytes=np.array(num_bytes))


def test_raw_differences(tmp_path):
  _raw(tmp_path / 'a.npz', [[math.log(2)], [5 * math.log(2)]])
  entry = {'row': 'a.npz:on', 'less': 'a.npz:off'}
  result = evidence.difference(tmp_path, entry)
  assert result.of_seeds == pytest.approx((-2 / 6, -10 / 6))  # bits a byte
  assert result.mean == pytest.approx(-1)


def test_raw_files_of_seeds(tmp_path):
  for seed in (0, 1):
    on = np.array([1.0, 0.0, seed])
    arrays = {'x/on': on, 'x/off': np.zeros(3), 'bytes': np.ones(3)}
    np.savez(tmp_path / f'{seed}.npz', **arrays)
  names = {'row': '{seed}.npz:x/on', 'less': '{seed}.npz:x/off'}
  result = evidence.difference(tmp_path, names | {'seeds': [0, 1]})
  assert result.of_seeds == pytest.approx((1 / 3, 2 / 3))  # shares, no bytes


@pytest.mark.parametrize('seeds, num_bytes', [(3, (2, 4)), (2, (4, 2))])
def test_other_items_or_seeds_are_refused(tmp_path, seeds, num_bytes):
  _raw(tmp_path / 'b.npz', 1.0)
  _raw(tmp_path / 'a.npz', 1.0, seeds, num_bytes)
  entry = {'row': 'a.npz:on', 'less': 'b.npz:off'}
  with pytest.raises(ValueError, match='b.npz:off'):
    evidence.difference(tmp_path, entry)


def test_a_row_of_fewer_seeds_names_those_of_the_other(tmp_path):
  _raw(tmp_path / 'b.npz', 0.0)
  _raw(tmp_path / 'a.npz', 0.0, seeds=3)
  entry = {'row': 'b.npz:on', 'less': 'a.npz:off', 'less_seeds': [1, 2]}
  expected = -4 / (6 * math.log(2))  # 2 nats of each of two items
  of_seeds = evidence.difference(tmp_path, entry).of_seeds
  assert of_seeds == pytest.approx((expected, expected))


def test_intervals_of_seeds_are_joined(tmp_path):
  """Two files of a seed each, which share items, and one file with two seeds."""
  values = (
    {'mean': 2, 'low': 1, 'high': 3},
    {'mean': 4, 'low': 1, 'high': 7},
    {'mean': -1.0, 'low': -2.0, 'high': -0.5, 'of_seeds': [-1.5, -0.5]},
  )
  for i, value in enumerate(values):
    rows = [{'name': 'off'}, {'name': 'on', 'minus': value}]
    (tmp_path / f'{i}.json').write_text(json.dumps({'rows': rows}))
  at = {'at': ['rows', 'name=on', 'minus']}
  one, three = ((x / 1.96) ** 2 for x in (1, 3))
  expected = intervals.combine(3.0, (one + three) / 2, (2.0, 4.0))
  entry = at | {'file': '{seed}.json', 'seeds': [0, 1]}
  assert evidence.difference(tmp_path, entry) == expected
  both = evidence.difference(tmp_path, at | {'file': '2.json'})
  assert both.of_seeds == (-1.5, -0.5)
  entry = at | {'file': '2.json', 'trained': False}
  fixed = evidence.difference(tmp_path, entry)
  assert fixed.of_seeds == () and fixed.error < both.error
