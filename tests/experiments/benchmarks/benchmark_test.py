# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Sides of a benchmark: their turns, numbers and table."""

import re
import sys

import numpy
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
    assert measure.steps() == ['wait', 'fill', 'say', 'fail']
    waited = measure('wait')
    assert waited['wall_sec'] >= 0.2 > waited['cpu_sec']
    filled = measure('fill')
    assert filled['peak_gib'] > waited['peak_gib'] + 0.05
    assert filled['more_mib'] > 60 > waited['more_mib']
    assert measure('say')['found'] == 2.0
    with pytest.raises(ValueError, match='stopped; its error is above'):
      measure('fail')


def test_kernels_name_the_library_the_instructions_and_the_threads():
  numpy.ones((2, 2)) @ numpy.ones((2, 2))
  assert re.search(r'blas [\d.]+ \w+ x\d', turns.kernels())


class FakeSide:
  """Ours takes a second and a GiB; theirs three, then five."""

  asked = []

  def __init__(self, name):
    self._name, self._calls = name, 0

  def steps(self):
    return ['a', 'b'] if self._name == 'ours' else ['a']

  def __call__(self, step):
    self.asked.append((step, self._name))
    self._calls += 1
    took = 1.0 if self._name == 'ours' else 1.0 + 2 * self._calls
    names = ('wall_sec', 'cpu_sec', 'peak_gib', 'more_mib')
    items = {'items': 4} if self._name == 'ours' else {}
    return dict.fromkeys(names, took) | items


def test_sides_take_turns(capsys):
  sides = {name: FakeSide(name) for name in ('ours', 'peer')}
  results = turns.alternate(sides, 3)
  assert FakeSide.asked[:4] == 2 * [('a', 'ours'), ('a', 'peer')]
  assert FakeSide.asked[-4:] == 4 * [('b', 'ours')]
  # The first round is not timed; seconds are medians, memory is the peak.
  assert results['a']['peer'] == {
    'wall_sec': 7.0,
    'cpu_sec': 7.0,
    'min_sec': 5.0,
    'first_sec': 3.0,
    'peak_gib': 9.0,
    'more_mib': 9.0,
  }
  FakeSide.asked.clear()
  turns.alternate(sides, 1, rounds_first=True)
  once = [('a', 'ours'), ('a', 'peer'), ('b', 'ours')]
  assert FakeSide.asked == 2 * once
  benchmark.show(results, 'title')
  # Four items of ours in a second; one of theirs in seven.
  assert '28.00' in capsys.readouterr().out


def test_a_peer_that_is_not_installed(tmp_path, capfd):
  with pytest.raises(ValueError, match='stopped'):
    benchmark.run(
      'realm', {'d_model': 16, 'd_ff': 16, 'num_layers': 1,
      'num_candidates': 2, 'vocab_size': 1100, 'query_length': 12,
      'block_length': 8}, str(tmp_path), sys.executable, 1,
    )  # fmt: skip
  assert 'No module named' in capfd.readouterr().err
