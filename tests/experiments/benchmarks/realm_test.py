# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The benchmarks of REALM at sizes that say nothing of speed."""

import json
import pathlib
import sys

import pytest

from experiments.benchmarks import (
  comparison,
  realm as benchmark_realm,
  refresh as benchmark_refresh,
  turns,
)
from experiments.engine import metric_writer
from experiments.realm import train as realm_train
from tests.experiments.realm import tiny_realm

_SERVE = """
from experiments.benchmarks import turns
data = []
turns.serve({
  'wait': lambda: __import__('time').sleep(0.2),
  'fill': lambda: data.append(bytearray(b'x' * (64 << 20))),
  'fail': lambda: 1 / 0,
})
"""


def test_sides_take_turns():
  side = turns.Side([sys.executable, '-c', _SERVE])
  waited = side.measure('wait')
  assert waited['wall_sec'] >= 0.2 > waited['cpu_sec']
  filled = side.measure('fill')
  assert filled['peak_gib'] > waited['peak_gib'] + 0.05
  with pytest.raises(ValueError, match='stopped; its error is above'):
    side.measure('fail')


SIZES = benchmark_realm.SIZES | {
  'vocab_size': 1100, 'd_model': 16, 'num_layers': 1, 'num_heads': 2,
  'd_ff': 16, 'num_candidates': 2, 'query_length': 12, 'block_length': 8,
}  # fmt: skip


@pytest.mark.slow
def test_steps_of_ours():
  results = benchmark_realm.measure('', 2, 1, SIZES)
  assert list(results) == ['embed', 'train']
  for sides in results.values():
    assert list(sides) == ['ours']
    assert all(value > 0 for value in sides['ours'].values())
  train, embed = (results[step]['ours'] for step in ('train', 'embed'))
  assert train['cpu_sec'] > embed['cpu_sec']


class FakeSide:
  """Ours takes a second and a GiB; theirs three, then five."""

  def __init__(self, arguments, env=None):
    del env
    self._ours = arguments[0] == sys.executable
    self._calls = 0
    self.open = SIDES.append(self) is None

  def __enter__(self):
    return self

  def __exit__(self, *unused_exception):
    self.open = False

  def measure(self, step):
    del step
    self._calls += 1
    took = 1.0 if self._ours else 1.0 + 2 * self._calls
    return {'wall_sec': took, 'cpu_sec': took, 'peak_gib': took}


SIDES = []


def test_ratios(monkeypatch, capsys):
  monkeypatch.setattr(turns, 'Side', FakeSide)
  results = benchmark_realm.measure('python9', 4, 3, SIZES)
  assert [side.open for side in SIDES] == [False, False]
  embed = results['embed']
  # The first round is not timed; seconds are medians, memory is the peak.
  wanted = {'wall_sec': 7.0, 'min_sec': 5.0, 'cpu_sec': 7.0, 'peak_gib': 9.0}
  assert embed['transformers'] == embed['ratio'] == wanted
  comparison.show(results, 'REALM', {'embed': (8, 'blocks')})
  printed = capsys.readouterr().out
  assert '8.0 blocks/s' in printed and 'transformers' in printed


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  return tiny_realm.make_data(tmp_path_factory.mktemp('data'))


def test_publication(data, tmp_path):
  config = tiny_realm.get_config(data)
  found = benchmark_refresh.measure_publication(config, tmp_path)
  blocks = tiny_realm.data_of(config).blocks.num_blocks
  assert found['blocks'] == blocks
  assert found['blocks_per_sec'] == pytest.approx(blocks / found['sec'])
  assert 4 < found['mean_tokens'] <= config.blocks.max_length
  assert not list(tmp_path.iterdir())


def test_schedules(data, tmp_path, monkeypatch):
  """Throughput is that of all steps but the first; runs are faked."""
  asked = []

  def run(config, folder):
    asked.append((config.refresh.schedule, config.refresh.every))
    with metric_writer.MetricWriter(folder, resume_step=0) as writer:
      for step, rate in ((5, 0.01), (10, 1.0), (15, 0.5), (20, 1.0)):
        values = {'steps_per_sec': rate, 'index_age_steps': step}
        writer.write(step, values | {'data_wait_share': 0.25})
    assert pathlib.Path(folder).parent == tmp_path

  monkeypatch.setattr(realm_train, 'run', run)
  config = tiny_realm.get_config(data)
  found = benchmark_refresh.measure_schedules(config, tmp_path, 20)
  assert asked == [('frozen', 7), ('async', 7), ('sync', 7)]
  for result in found.values():
    assert result['steps_per_sec'] == pytest.approx(15 / 20)
    assert (result['oldest'], result['data_wait_share']) == (20, 0.25)
  json.dumps(found)
