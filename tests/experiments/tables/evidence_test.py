# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Values of results files, and copies that hold no more than these."""

import json

from experiments.tables import evidence

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
