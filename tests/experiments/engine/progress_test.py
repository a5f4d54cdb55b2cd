# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Rates with the clock in hand."""

import logging

import jax
import pytest

from experiments.engine import progress


class _Device:
  device_kind = 'NVIDIA H100 80GB HBM3'


@pytest.fixture
def clock(monkeypatch):
  now = [100.0]
  for name in ('perf_counter', 'monotonic'):
    monkeypatch.setattr(progress.time, name, lambda: now[0])
  return now


def test_throughput_leaves_out_compilation_and_pauses(clock):
  meter = progress.Throughput(1000, 989e12 * 0.1, [_Device()] * 2)
  clock[0] += 60.0  # compilation
  meter.tick()
  for _ in range(4):
    clock[0] += 0.5
    meter.tick()
  meter.pause()
  clock[0] += 30.0  # validation
  meter.tick()
  clock[0] += 0.5
  meter.tick()
  rates = meter.read()
  assert rates['steps_per_sec'] == pytest.approx(2.0)
  assert rates['tokens_per_sec'] == pytest.approx(2000.0)
  assert rates['model_flops_per_sec'] == pytest.approx(989e12 * 0.2)
  assert rates['mfu'] == pytest.approx(0.1)
  assert meter.read() == {}


def test_peak():
  assert progress.peak_flops_per_sec('NVIDIA H100 PCIe') == 756e12
  assert progress.peak_flops_per_sec('TPU v5 lite') == 197e12
  assert progress.peak_flops_per_sec(jax.devices()[0].device_kind) is None


def test_log_lines_have_rate_and_time_left(clock, caplog):
  with caplog.at_level(logging.INFO, logger='absl'):
    with progress.bar('embed', 'chunks') as update:
      update(1000, 5000)  # done in an earlier run
      clock[0] += 5.0
      update(1500, 5000)
      clock[0] += 5.0
      update(2000, 5000)
      update(2001, 5000)
      clock[0] += 1.0
      update(5000, 5000)
    with progress.bar('tokenize', 'documents') as update:
      for done in (10, 20, 30):
        clock[0] += 6.0
        update(done, 0)  # of an unknown number
  assert [record.getMessage() for record in caplog.records] == [
    'embed: 2000/5000 chunks, 100/s, 0:00:30 left',
    'embed: 5000/5000 chunks, 364/s, 0:00:00 left',
    'tokenize: 20 documents, 1.67/s',
  ]


def test_bar_on_a_terminal(monkeypatch):
  monkeypatch.setattr(progress.sys.stderr, 'isatty', lambda: True)
  with progress.bar('embed', 'chunks') as update:
    update(1, 0)
    update(1, 2)
    update(2, 2)
