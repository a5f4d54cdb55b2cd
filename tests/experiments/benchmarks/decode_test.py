# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The benchmark of sampling at sizes that say nothing of speed."""

import json

import pytest

from experiments.benchmarks import decode as benchmark_decode
from tests.retro_jax.nn import tiny


class FakeSide:
  """A token costs an hour for each token before it, half of it computing."""

  def __init__(self):
    self.asked = []

  def measure(self, step):
    self.asked.append(int(step))
    hours = 3600.0 * int(step)
    return {'wall_sec': hours, 'cpu_sec': hours / 2}


def test_all_sides_take_turns(capsys):
  config = tiny.config(num_layers=1, cca_layers=(1,), encoder_num_layers=1)
  side = FakeSide()
  (row,) = benchmark_decode.measure(config, 2, (16,), 2, side)
  assert side.asked == 3 * [2, 6, 10, 14]  # the first round is not timed
  assert row['length'] == 16
  assert row['baseline']['wall_sec'] == pytest.approx(8 * 3600)
  assert row['baseline']['cpu_sec'] == pytest.approx(4 * 3600)
  for side in ('cached', 'whole'):
    assert min(row[side].values()) > 0
    ratio = row[side]['wall_sec'] / row['cached']['wall_sec']
    assert row[side]['ratio_wall'] == pytest.approx(ratio)
  benchmark_decode.show([row])
  printed = capsys.readouterr().out
  assert 'retro-pytorch' in printed and 'ours, whole model' in printed
  json.dumps(row)


def test_a_cached_text_is_drawn_to_its_end():
  config = tiny.config(num_layers=1, cca_layers=(1,), encoder_num_layers=1)
  decoders = benchmark_decode.Decoders(config, 2)
  assert len(decoders.cached(16)) == 15
  assert len(decoders.cached(16, 5)) == 5


def test_rows_are_summed_up():
  wall = [4.0] + 4 * [1.0] + 4 * [2.0] + 4 * [2.0] + 4 * [3.0]
  text = [(sec, sec / 2) for sec in wall]
  row = benchmark_decode._row(18, [text], [(5.0, 1.0), (7.0, 3.0)], [])
  assert row['cached']['wall_sec'] == pytest.approx(36 / 17)
  assert row['whole']['cpu_sec'] == 2.0
  assert row['whole']['ratio_cpu'] == pytest.approx(2 / (18 / 17))
  assert row['fill_cpu_sec'] == 2.0
  assert row['step_cpu_sec'] == [0.5, 1.0, 1.0, 1.5]
  assert 'baseline' not in row
