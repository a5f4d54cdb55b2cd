# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Sides of a benchmark: their turns, numbers and table."""

import sys

import pytest

from experiments.benchmarks import benchmark, turns

_SERVE = """
from experiments.benchmarks import turns
data = []
turns.serve({
  'wait': lambda: __import__('time').sleep(0.2),
  'fill': lambda: data.append(bytearray(b'x' * (64 << 20))),
  'say': lambda: {'found': 2.0},
  'fail': lambda: 1 / 0,
})
"""


def test_a_side_measures_its_steps():
  with turns.side([sys.executable, '-c', _SERVE], {}) as measure:
    assert measure('') == ['wait', 'fill', 'say', 'fail']
    waited = measure('wait')
    assert waited['seconds'] >= 0.2 > waited['CPU s']
    filled = measure('fill')
    assert filled['GiB'] > waited['GiB'] + 0.05
    assert filled['+MiB'] > 60 > waited['+MiB']
    assert measure('say')['found'] == 2.0
    with pytest.raises(ValueError, match='stopped; its error is above'):
      measure('fail')


def _side(name, asked):
  """Ours takes a second; theirs three, then five."""
  took, items = [1.0], {'items': 4} if name == 'ours' else {}

  def run(step):
    if not step:
      return ['a', 'b'] if name == 'ours' else ['a']
    asked.append((step, name))
    took[0] += 2 * (name != 'ours')
    return dict.fromkeys(('seconds', 'CPU s', 'GiB', '+MiB'), took[0]) | items

  return run


def test_sides_take_turns(capsys):
  asked = []
  sides = {name: _side(name, asked) for name in ('ours', 'peer')}
  results = turns.alternate(sides, 3)
  assert asked == 4 * [('a', 'ours'), ('a', 'peer'), ('b', 'ours')]
  # The first round is not timed.
  assert results['a', 'peer'] == {
    'seconds': 7.0, 'CPU s': 7.0, 'GiB': 7.0, '+MiB': 9.0,
  }  # fmt: skip
  benchmark.show(results, 'title')
  # Four items of ours in a second; one of theirs in seven.
  [line] = [x for x in capsys.readouterr().out.splitlines() if 'a, peer' in x]
  assert line.split()[-2:] == ['28', '28']
