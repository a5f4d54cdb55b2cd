# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Metrics to `metrics.jsonl` and TensorBoard event files in the workdir.

Each row of `metrics.jsonl` is an object with 'step', appended when it is measured.
A resumed run moves the rows after the step that it resumes from to the end of
`metrics.cut.jsonl`, so that each step stands once.
"""

from collections.abc import Iterator, Mapping
import contextlib
import io
import json
import math
import os
import pathlib
import socket
import time

import jax
from jax.experimental import multihost_utils
from tensorboardX import record_writer, summary
from tensorboardX.proto import event_pb2

from retrieval.store import locks

FILE, CUT_FILE = 'metrics.jsonl', 'metrics.cut.jsonl'


class MetricWriter:
  """Writes scalars; on every process but the first it does nothing."""

  def __init__(self, workdir: str, *, resume_step: int = 0):
    """Open the files.

    Args:
      workdir: the run's folder, created if absent.
      resume_step: rows of later steps, left by a killed run, are moved.

    Raises:
      locks.WriterError: if another process writes this folder.
      ValueError: for a row that cannot be read.
    """
    self._path = pathlib.Path(workdir) / FILE
    self._events = self._rows = None
    is_first = not jax.process_index()
    with locks.writer(workdir) if is_first else contextlib.nullcontext():
      # All processes know what is measured: they measure the rest together.
      rows = [*_rows(self._path)]
      self._written = {
        (row['step'], name)
        for row, _ in rows
        if row['step'] <= resume_step
        for name in row
      }
      if jax.process_count() > 1:
        multihost_utils.sync_global_devices('metrics')
      if is_first:
        self._rows = self._path.open('ab')
        _cut_after(self._path, rows, resume_step)
        self._events = _Events(workdir, resume_step + 1)

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
    self._events.write(step, values)

  def written(self, step: int, prefix: str) -> bool:
    """Whether metrics with this prefix were written of a step, now or before."""
    return any(s == step and n.startswith(prefix) for s, n in self._written)


class _Events:
  """A TensorBoard event file, on disk whenever a call returns."""

  def __init__(self, workdir: str, first_step: int):
    host = f'{socket.gethostname()}.{os.getpid()}'
    name = f'events.out.tfevents.{int(time.time())}.{host}'
    self._path = os.path.join(workdir, name)
    self._file = record_writer.RecordWriter(self._path)
    start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
    self._add(
      [
        event_pb2.Event(file_version='brain.Event:2'),
        # What other files hold from this step on counts no longer.
        event_pb2.Event(step=first_step, session_log=start),
      ]
    )

  def write(self, step: int, values: Mapping[str, float]) -> None:
    self._add(
      [
        event_pb2.Event(step=step, summary=summary.scalar(name, float(value)))
        for name, value in values.items()
      ]
    )

  def _add(self, events: list[event_pb2.Event]) -> None:
    for event in events:
      event.wall_time = time.time()
      self._file.write(event.SerializeToString())
    self._file.flush()

  def close(self) -> None:
    self._file.close()


def read(path: str | os.PathLike) -> list[dict[str, float]]:
  """Read the rows of a `metrics.jsonl`; a half-written last row is left out.

  Args:
    path: the file, or the workdir it is in; an absent file has no rows.

  Raises:
    ValueError: if a row is damaged; names the file and the line.
  """
  path = pathlib.Path(path)
  return [row for row, _ in _rows(path / FILE if path.is_dir() else path)]


def _rows(path: pathlib.Path) -> Iterator[tuple[dict[str, float], bytes]]:
  """Yield each row and its line; a half-written last row is left out."""
  lines = io.BytesIO(path.read_bytes() if path.exists() else b'')
  for number, line in enumerate(lines, 1):
    try:
      row = json.loads(line.decode())
      if not isinstance(row, dict) or not isinstance(row.get('step'), int):
        raise ValueError("expected an object with a whole number as 'step'")
    except (ValueError, RecursionError) as error:
      if not line.endswith(b'\n'):
        return
      raise ValueError(
        f'{path}, line {number}: damaged ({error}); correct or remove this '
        'line.'
      ) from None
    yield row, line


def _cut_after(
  path: pathlib.Path, rows: list[tuple[dict[str, float], bytes]], step: int
) -> None:
  """Move the rows after `step` to the file of cut rows, and keep all others."""
  later = [row['step'] > step for row, _ in rows]
  first = later.index(True) if any(later) else len(rows)
  end = sum(len(line) for _, line in rows[:first])
  after = [
    line
    for (_, line), is_later in zip(rows[first:], later[first:], strict=True)
    if not is_later
  ]
  _cut(path, end, b''.join(after))


def _cut(path: pathlib.Path, end: int, after: bytes) -> None:
  """Replace the bytes after `end` by `after`, and keep whole lines of them.

  After a kill each line stands in one of both files.
  """
  data = path.read_bytes()
  lines = data[end : data.rfind(b'\n') + 1]
  if lines:
    with (path.parent / CUT_FILE).open('ab') as f:
      f.write(lines)
      f.flush()
      os.fsync(f.fileno())
  os.truncate(path, end)
  if data[:end][-1:] not in (b'', b'\n'):  # a last row without its end
    after = b'\n' + after
  if after:
    with path.open('ab') as f:
      f.write(after.removesuffix(b'\n') + b'\n')
