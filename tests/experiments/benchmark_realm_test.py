# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The benchmarks of REALM at sizes that say nothing of speed."""

import json
import pathlib
import sys

import pytest

from experiments import benchmark_realm
from experiments import benchmark_refresh
from experiments import benchmark_turns
from experiments import metric_writer
from experiments import realm_train
from tests.experiments import tiny_realm

_SERVE = """
from experiments import benchmark_turns
data = []
benchmark_turns.serve({
  'wait': lambda: __import__('time').sleep(0.2),
  'fill': lambda: data.append(bytearray(b'x' * (64 << 20))),
  'fail': lambda: 1 / 0,
})
"""


def test_sides_take_turns():
  side = benchmark_turns.Side([sys.executable, '-c', _SERVE])
  waited = side.measure('wait')
  assert waited['wall_sec'] >= 0.2 > waited['cpu_sec']
  filled = side.measure('fill')
  assert filled['peak_gib'] > waited['peak_gib'] + 0.05
  with pytest.raises(ValueError, match='stopped; its error is above'):
    side.measure('fail')


def test_a_step_of_ours():
  sizes = benchmark_realm.SIZES | {
    'vocab_size': 1100, 'd_model': 16, 'num_layers': 1, 'num_heads': 2,
    'd_ff': 16, 'num_candidates': 2, 'query_length': 12, 'block_length': 8,
  }  # fmt: skip
  found = benchmark_realm.measure_step('', 2, 1, sizes)
  assert found['batch'] == 2 and set(found) == {'batch', 'ours'}
  assert all(value > 0 for value in found['ours'].values())


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
  assert asked == [('frozen', 6), ('async', 6), ('sync', 6)]
  for result in found.values():
    assert result['steps_per_sec'] == pytest.approx(15 / 20)
    assert (result['oldest'], result['data_wait_share']) == (20, 0.25)
  json.dumps(found)
