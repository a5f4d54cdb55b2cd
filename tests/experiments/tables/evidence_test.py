# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Values of results files, and copies that hold no more than these."""

import json
import math

import numpy as np
import pytest

from experiments.tables import evidence, intervals

_INTERVAL = {'mean': -1.0, 'low': -2.0, 'high': -0.5, 'of_seeds': [-1.5, -0.5]}
_CONTENT = {
  'settings': {'k': 2},
  'rows': [
    {'name': 'off', 'bits_per_byte': 2.0, 'nats': 7.0},
    {'name': 'k1', 'bits_per_byte': 2.0, 'minus': {'off': _INTERVAL}},
    {
      'name': 'on',
      'bits_per_byte': 1.0,
      'bits_per_byte_of_seeds': [0.5, 1.5],
      'nats': 3.0,
      'minus': {'off': _INTERVAL, 'other': _INTERVAL},
    },
  ],
}
_MINUS = ['rows', 'name=on', 'minus', 'off']
_PLACES = [
  _MINUS,
  ['rows', 'name=on'],
  ['rows', 'name=none'],
  ['rows', 'name=k1', 'minus', 'off'],
]


def _write(folder, content):
  folder.mkdir(exist_ok=True)
  (folder / 'a.json').write_text(json.dumps(content))


def test_values_with_and_without_an_interval(tmp_path):
  _write(tmp_path, _CONTENT)
  folders = [tmp_path / 'none', tmp_path]
  found = [evidence.read(folders, 'a.json', at) for at in _PLACES]
  assert found == [
    evidence.Value(-1.0, -2.0, -0.5, (-1.5, -0.5)),
    evidence.Value(1.0, of_seeds=(0.5, 1.5)),
    None,
    evidence.Value(-1.0, -2.0, -0.5, (-1.5, -0.5)),
  ]
  assert evidence.read(folders, 'b.json', _MINUS) is None


def test_a_copy_holds_what_is_cited(tmp_path):
  runs, kept, again = (tmp_path / x for x in ('runs', 'kept', 'again'))
  _write(runs, _CONTENT)
  places = [(name, at) for name in ('a.json', 'b.json') for at in _PLACES]
  evidence.copy(runs, kept, places)
  on = {key: x for key, x in _CONTENT['rows'][2].items() if key != 'nats'}
  minus = {'minus': {'off': _INTERVAL}}
  want = {'rows': [{'name': 'k1'} | minus, on | minus]}
  assert json.loads((kept / 'a.json').read_text()) == want
  assert [x.name for x in kept.iterdir()] == ['a.json']
  for at in _PLACES:
    values = [evidence.read([x], 'a.json', at) for x in (runs, kept)]
    assert values[0] == values[1]
  evidence.copy(kept, again, places)
  assert (again / 'a.json').read_bytes() == (kept / 'a.json').read_bytes()


def _raw(folder, on, seeds=2, bytes_=(2, 4)):
  off = np.arange(2.0 * seeds).reshape(seeds, 2)
  arrays = {'off': off, 'on': off - on, 'other': off}
  np.savez(folder / 'a.npz', **arrays, bytes=np.array(bytes_))


def test_raw_differences(tmp_path):
  _raw(tmp_path, [[math.log(2)], [5 * math.log(2)]])
  entry = {'row': 'a.npz:on', 'less': 'a.npz:off'}
  found = evidence.difference([tmp_path / 'none', tmp_path], entry)
  assert found.of_seeds == pytest.approx((-2 / 6, -10 / 6))  # bits a byte
  assert found.mean == pytest.approx(-1)
  for absent in ('a.npz:none', 'b.npz:off'):
    assert evidence.difference([tmp_path], entry | {'less': absent}) is None
  kept = tmp_path / 'kept'
  evidence.copy(tmp_path, kept, evidence.places(entry))
  assert {*np.load(kept / 'a.npz')} == {'on', 'off', 'bytes'}
  again = evidence.difference([kept], entry)  # nats are rounded
  assert again.of_seeds == pytest.approx(found.of_seeds, abs=2e-2)


def test_raw_files_of_seeds(tmp_path):
  for seed in (0, 1):
    on = np.array([1.0, 0.0, seed])
    arrays = {'x/on': on, 'x/off': np.zeros(3), 'bytes': np.ones(3)}
    np.savez(tmp_path / f'{seed}.npz', **arrays)
  names = {'row': '{seed}.npz:x/on', 'less': '{seed}.npz:x/off'}
  found = evidence.difference([tmp_path], names | {'seeds': [0, 1]})
  assert found.of_seeds == pytest.approx((1 / 3, 2 / 3))  # shares, no bytes
  kept = tmp_path / 'kept'
  evidence.copy(tmp_path, kept, evidence.places(names | {'seeds': [0, 1]}))
  assert {*np.load(kept / '1.npz')} == {'x/on', 'x/off'}
  assert evidence.difference([tmp_path], names | {'seeds': [0, 2]}) is None


@pytest.mark.parametrize('seeds, bytes_', [(3, (2, 4)), (2, (4, 2))])
def test_other_items_or_seeds_are_refused(tmp_path, seeds, bytes_):
  _raw(tmp_path, 1.0)
  (tmp_path / 'a.npz').rename(tmp_path / 'b.npz')
  _raw(tmp_path, 1.0, seeds, bytes_)
  entry = {'row': 'a.npz:on', 'less': 'b.npz:off'}
  with pytest.raises(ValueError, match='b.npz:off'):
    evidence.difference([tmp_path], entry)


def test_a_row_of_fewer_seeds_names_those_of_the_other(tmp_path):
  _raw(tmp_path, 0.0)
  (tmp_path / 'a.npz').rename(tmp_path / 'b.npz')
  _raw(tmp_path, 0.0, seeds=3)
  entry = {'row': 'b.npz:on', 'less': 'a.npz:off', 'less_seeds': [1, 2]}
  found = evidence.difference([tmp_path], entry)
  want = -4 / (6 * math.log(2))  # 2 nats of each of two items
  assert found.of_seeds == pytest.approx((want, want))


def test_intervals_of_seeds_are_joined(tmp_path):
  """One file with two seeds, and two files of a seed each, which share items."""
  _write(tmp_path, {'rows': [{'name': 'x', 'mean': 2, 'low': 1, 'high': 3}]})
  (tmp_path / 'a.json').rename(tmp_path / '0.json')
  _write(tmp_path, {'rows': [{'name': 'x', 'mean': 4, 'low': 1, 'high': 7}]})
  (tmp_path / 'a.json').rename(tmp_path / '1.json')
  entry = {'file': '{seed}.json', 'at': ['rows', 'name=x'], 'seeds': [0, 1]}
  one, three = ((x / 1.96) ** 2 for x in (1, 3))
  want = intervals.combine(3.0, (one + three) / 2, (2.0, 4.0))
  assert evidence.difference([tmp_path], entry) == want
  _write(tmp_path, _CONTENT)
  entry = {'file': 'a.json', 'at': _MINUS}
  found = evidence.difference([tmp_path], entry)
  assert found.of_seeds == (-1.5, -0.5)
  fixed = evidence.difference([tmp_path], entry | {'trained': False})
  assert fixed.of_seeds == () and fixed.error < found.error
