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


def test_the_rate_is_that_of_the_last_steps(clock, caplog):
  with caplog.at_level(logging.INFO, logger='absl'):
    with progress.bar('train', 'steps') as update:
      update(100, 500)  # done in an earlier run
      for step, sec in enumerate([600.0, *[12.0] * 40, *[20.0] * 30], 101):
        clock[0] += sec  # the first step is compiled
        update(step, 500)
    with progress.bar('tokenize', 'documents') as update:
      for done in (10, 20, 30, 40):
        clock[0] += 6.0
        update(done, 0)  # of an unknown number
      update(40, 40)
  lines = [record.getMessage() for record in caplog.records]
  assert lines[:3] == [
    'train: 101/500 steps',
    'train: 102/500 steps',
    'train: 103/500 steps, 0.0833/s, 1:19:24 left',
  ]
  assert lines[-4:] == [
    'train: 171/500 steps, 0.05/s, 1:49:40 left',
    'tokenize: 20 documents',
    'tokenize: 40 documents, 1.67/s',
    'tokenize: 40/40 documents, 1.67/s',
  ]


def test_bar_on_a_terminal(monkeypatch):
  monkeypatch.setattr(progress.sys.stderr, 'isatty', lambda: True)
  with progress.bar('embed', 'chunks') as update:
    update(1, 0)
    update(1, 2)
    update(2, 2)
