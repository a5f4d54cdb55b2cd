# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows on disk, events, and what a resumed run finds of them."""

import json
import math

import pytest

from experiments.engine import metric_writer


def test_rows_and_events(tmp_path):
  with metric_writer.MetricWriter(str(tmp_path)) as writer:
    writer.write(1, {'loss': 0.1})
    # On disk before the writer closes: a killed run keeps them.
    assert metric_writer.read(tmp_path) == [{'step': 1, 'loss': 0.1}]
    writer.write(2, {'loss': math.nan})
  text = (tmp_path / metric_writer.FILE).read_text()
  assert [json.loads(line) for line in text.splitlines()] == [
    {'step': 1, 'loss': 0.1},
    {'step': 2, 'loss': None},
  ]
  assert list(tmp_path.glob('events.out.tfevents.*'))


def test_resume_drops_later_and_half_rows(tmp_path):
  with metric_writer.MetricWriter(str(tmp_path)) as writer:
    for step in (1, 2, 3):
      writer.write(step, {'loss': float(step)})
  with (tmp_path / metric_writer.FILE).open('a') as file:
    file.write('{"step": 4, "lo')
  with metric_writer.MetricWriter(str(tmp_path), resume_step=2) as writer:
    assert writer.written(2, 'lo') and not writer.written(3, 'lo')
    assert not writer.written(2, 'valid/')
    writer.write(3, {'loss': 30.0})
  rows = metric_writer.read(tmp_path)
  assert [(row['step'], row['loss']) for row in rows] == [
    (1, 1.0),
    (2, 2.0),
    (3, 30.0),
  ]


def test_other_processes_write_nothing(tmp_path, monkeypatch):
  monkeypatch.setattr(metric_writer.jax, 'process_index', lambda: 1)
  with metric_writer.MetricWriter(str(tmp_path)) as writer:
    writer.write(1, {'loss': 0.1})
  assert not list(tmp_path.iterdir())


def test_damaged_row_is_named(tmp_path):
  path = tmp_path / metric_writer.FILE
  path.write_text('{"step": 1}\n{"st\n{"step": 3}\n')
  with pytest.raises(ValueError, match='metrics.jsonl, line 2'):
    metric_writer.read(path)


def test_absent_file_has_no_rows(tmp_path):
  assert metric_writer.read(tmp_path) == []
