# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows on disk, events, and what a resumed run finds of them."""

import json
import math
import resource

import pytest

from experiments.engine import metric_writer


def test_rows_and_events(tmp_path):
  with metric_writer.MetricWriter(str(tmp_path)) as writer:
    assert metric_writer.read(tmp_path) == []
    (events,) = tmp_path.glob('events.out.tfevents.*')
    before = events.stat().st_size
    writer.write(1, {'loss': 0.1})
    # On disk before the writer closes: a killed run keeps them.
    assert metric_writer.read(tmp_path) == [{'step': 1, 'loss': 0.1}]
    assert events.stat().st_size > before
    writer.write(2, {'loss': math.nan})
  text = (tmp_path / metric_writer.FILE).read_text()
  assert [json.loads(line) for line in text.splitlines()] == [
    {'step': 1, 'loss': 0.1},
    {'step': 2, 'loss': None},
  ]


def test_resume_drops_later_and_half_rows(tmp_path):
  with metric_writer.MetricWriter(str(tmp_path)) as writer:
    for step in (1, 2, 3):
      writer.write(step, {'loss': float(step)})
  with (tmp_path / metric_writer.FILE).open('a') as file:
    file.write('{"step": 4, "lo')
  assert len(metric_writer.read(tmp_path)) == 3
  with metric_writer.MetricWriter(str(tmp_path), resume_step=2) as writer:
    assert writer.written(2, 'lo') and not writer.written(3, 'lo')
    assert not writer.written(2, 'valid/')
    writer.write(3, {'loss': 30.0})
  rows = metric_writer.read(tmp_path)
  assert [row['loss'] for row in rows] == [1.0, 2.0, 30.0]


@pytest.mark.parametrize('names', [1, 300])
def test_a_file_that_may_not_grow_ends_in_one_error(tmp_path, names):
  writer = metric_writer.MetricWriter(str(tmp_path))
  values = {f'metric_{i}': float(i) for i in range(names)}
  largest = resource.getrlimit(resource.RLIMIT_FSIZE)
  with writer:
    writer.write(1, values)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, largest[1]))
    try:
      with pytest.raises(OSError):
        for step in range(2, 1000):
          writer.write(step, values)
    finally:
      resource.setrlimit(resource.RLIMIT_FSIZE, largest)
  assert metric_writer.read(tmp_path)[0] == {'step': 1} | values


def _resume(workdir, step):
  with metric_writer.MetricWriter(str(workdir), step, every=10):
    pass


@pytest.mark.parametrize(
  'keep, line, missing',
  [
    (slice(0, 4), 5, 'after 40 and before 100 '),
    (slice(6, None), 1, 'after 0 and before 70 '),
    (slice(0, 0), 1, 'after 0 and before 100 '),
  ],
)
def test_a_cut_file_is_named_on_resume(tmp_path, caplog, keep, line, missing):
  path = tmp_path / metric_writer.FILE
  rows = [b'{"step": %d, "loss": 1.0}\n' % x for x in range(10, 101, 10)]
  path.write_bytes(b''.join(rows[keep]) + b'{"step": 50, "lo')
  _resume(tmp_path, 100)
  (record,) = caplog.records
  assert record.getMessage().startswith(f'{path}, line {line}: ')
  assert missing in record.getMessage()


@pytest.mark.parametrize('steps', [range(10, 101, 10), range(50, 101, 50), []])
def test_a_whole_file_is_resumed_without_a_word(tmp_path, caplog, steps):
  path = tmp_path / metric_writer.FILE
  path.write_text(''.join(f'{{"step": {x}}}\n' for x in [*steps, *steps]))
  _resume(tmp_path, 105 if steps else 8)
  assert not caplog.records


def test_other_processes_write_nothing(tmp_path, monkeypatch):
  monkeypatch.setattr(metric_writer.jax, 'process_index', lambda: 1)
  with metric_writer.MetricWriter(str(tmp_path)) as writer:
    writer.write(1, {'loss': 0.1})
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
  'line',
  [b'{"step": 2, "lo\xff": 1}', b'3', b'{"step": "2"}', b''],
)
def test_damaged_row_is_named(tmp_path, line):
  path = tmp_path / metric_writer.FILE
  path.write_bytes(b'{"step": 1}\n' + line + b'\n{"step": 3}\n')
  with pytest.raises(ValueError, match='metrics.jsonl, line 2: damaged'):
    metric_writer.read(path)
  with pytest.raises(ValueError, match='metrics.jsonl, line 2: damaged'):
    metric_writer.MetricWriter(str(tmp_path), resume_step=1)
