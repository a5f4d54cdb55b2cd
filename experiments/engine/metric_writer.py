# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Metrics to `metrics.jsonl` and TensorBoard event files in the workdir.

Each row of `metrics.jsonl` is an object with 'step', appended when it is measured.
A resumed run removes the rows after the step that it resumes from: it measures the
same values again.
"""

from collections.abc import Mapping
import contextlib
import json
import math
import os
import pathlib
import time

from absl import logging
import jax
from jax.experimental import multihost_utils
import numpy as np
from tensorboardX import event_file_writer, summary
from tensorboardX.proto import event_pb2

from retrieval.store import locks, output_files

FILE = 'metrics.jsonl'


class MetricWriter:
  """Writes scalars; on every process but the first it does nothing."""

  def __init__(self, workdir: str, resume_step: int = 0, every: int = 0):
    """Open the files.

    Args:
      workdir: the run's folder, created if absent.
      resume_step: rows of later steps, left by a killed run, are removed.
      every: steps between rows; a larger gap before `resume_step` is warned of. 0
        for no check.

    Raises:
      locks.WriterError: if another process writes this folder.
      ValueError: for a row that cannot be read.
    """
    path = pathlib.Path(workdir) / FILE
    self._events = self._rows = None
    is_first = not jax.process_index()
    with locks.writer(workdir) if is_first else contextlib.nullcontext():
      # All processes know what is measured: they measure the rest together.
      rows = [row for row in read(path) if row['step'] <= resume_step]
      self._written = {(row['step'], name) for row in rows for name in row}
      if jax.process_count() > 1:
        multihost_utils.sync_global_devices('metrics')
      if is_first:
        if every:
          _warn_of_gap(path, rows, every, resume_step)
        text = ''.join(f'{json.dumps(row)}\n' for row in rows)
        if not path.exists() or path.read_text() != text:
          output_files.write(path, text)
        self._rows = path.open('ab')
        prefix = os.path.join(workdir, 'events')
        self._events = event_file_writer.EventsWriter(prefix, f'.{os.getpid()}')
        # It supersedes older files from its first step on.
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        _add(self._events, step=resume_step + 1, session_log=start)
        self._events.flush()

  def __enter__(self) -> 'MetricWriter':
    return self

  def __exit__(self, *unused_exception) -> None:
    for file in (self._rows, self._events):
      # What is not on disk by now did not fit: `write` has said so.
      with contextlib.suppress(OSError):
        if file is not None:
          file.close()

  def write(self, step: int, values: Mapping[str, float]) -> None:
    """Add one row, on disk when this returns. A NaN is written as null."""
    self._written.update((step, name) for name in values)
    if self._rows is None:
      return
    row = {'step': step} | {
      name: float(value) if math.isfinite(value) else None
      for name, value in values.items()
    }
    self._rows.write(f'{json.dumps(row)}\n'.encode())
    self._rows.flush()
    for name, value in values.items():
      scalar = summary.scalar(name, float(value))
      _add(self._events, step=step, summary=scalar)
    self._events.flush()

  def written(self, step: int, prefix: str) -> bool:
    """Whether metrics with this prefix were written of a step, now or before."""
    return any(s == step and n.startswith(prefix) for s, n in self._written)


def _warn_of_gap(
  path: pathlib.Path, rows: list[dict], every: int, end: int
) -> None:
  steps, before = [row['step'] for row in rows], 0
  usual = np.median(np.diff(np.unique(steps))) if len({*steps}) > 1 else every
  for line, step in enumerate([*steps, end], 1):
    if step - before > max(usual, every):
      logging.warning(
        '%s, line %d: the rows of steps after %d and before %d are missing; they '
        'are not measured again.',
        *(path, line, before, step),
      )
      break
    before = max(before, step)


def _add(events: event_file_writer.EventsWriter, **fields) -> None:
  events.write_event(event_pb2.Event(wall_time=time.time(), **fields))


def read(path: str | os.PathLike) -> list[dict[str, float]]:
  """Read the rows of a `metrics.jsonl`; a half-written last row is left out.

  Args:
    path: the file, or the workdir it is in; an absent file has no rows.

  Raises:
    ValueError: if a row is damaged; names the file and the line.
  """
  path = pathlib.Path(path)
  path, rows = path / FILE if path.is_dir() else path, []
  data = path.read_bytes() if path.exists() else b''
  for number, line in enumerate(data.splitlines(keepends=True), 1):
    try:
      row = json.loads(line)
      if not isinstance(row, dict) or not isinstance(row.get('step'), int):
        raise ValueError("expected an object with a whole number as 'step'")
    except (ValueError, RecursionError) as error:
      if not line.endswith(b'\n'):
        break
      raise ValueError(f'{path}, line {number}: damaged ({error}).') from None
    rows.append(row)
  return rows
