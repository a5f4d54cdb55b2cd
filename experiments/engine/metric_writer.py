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
import socket
import time

import jax
from tensorboardX import record_writer, summary
from tensorboardX.proto import event_pb2

from retrieval.store import locks, store

FILE = 'metrics.jsonl'


class MetricWriter:
  """Writes scalars; on every process but the first it does nothing."""

  def __init__(self, workdir: str, *, resume_step: int = 0):
    """Open the files, and remove the rows after `resume_step`, of a killed run."""
    self._files = contextlib.ExitStack()
    self._is_first = not jax.process_index()
    if not self._is_first:
      return
    path = pathlib.Path(workdir) / FILE
    with locks.writer(workdir):
      rows = [row for row in read(path) if row['step'] <= resume_step]
      text = ''.join(f'{json.dumps(row)}\n' for row in rows)
      if not path.exists() or path.read_text() != text:
        store.write_atomically(path, text)
      self._rows = self._files.enter_context(path.open('ab'))
      self._events = _open_events(workdir, resume_step + 1)
      self._files.callback(self._events.close)

  def __enter__(self) -> 'MetricWriter':
    return self

  def __exit__(self, *unused_exception) -> None:
    # What is not on disk by now did not fit: `write` has said so.
    with contextlib.suppress(OSError):
      self._files.close()

  def write(self, step: int, values: Mapping[str, float]) -> None:
    """Add one row, on disk when this returns. A NaN is written as null."""
    if not self._is_first:
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


def _open_events(workdir: str, first_step: int) -> record_writer.RecordWriter:
  """Start an event file; what others hold from `first_step` on counts no longer."""
  host = f'{socket.gethostname()}.{os.getpid()}'
  name = f'events.out.tfevents.{int(time.time())}.{host}'
  events = record_writer.RecordWriter(os.path.join(workdir, name))
  _add(events, file_version='brain.Event:2')
  start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
  _add(events, step=first_step, session_log=start)
  events.flush()
  return events


def _add(events: record_writer.RecordWriter, **fields) -> None:
  event = event_pb2.Event(wall_time=time.time(), **fields)
  events.write(event.SerializeToString())


def read(path: str | os.PathLike) -> list[dict[str, float]]:
  """Read the rows of a `metrics.jsonl`, or of that of a workdir; none if absent.

  A half-written last row is left out; ValueError names the line of a damaged one.
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
