# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Metrics to `metrics.jsonl` and TensorBoard event files in the workdir.

Each row of `metrics.jsonl` is an object with 'step', appended when it is measured.
A resumed run moves the rows after the step that it resumes from to the end of
`metrics.cut.jsonl`, so that each step stands once.
"""

from collections.abc import Iterator, Mapping
import io
import json
import math
import os
import pathlib

import jax
import tensorboardX

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
    self._events = self._rows = None
    self._written: set[tuple[int, str]] = set()
    if jax.process_index():
      return
    path = pathlib.Path(workdir) / FILE
    with locks.writer(workdir):
      end, after = 0, []  # rows that stand after others that are cut
      is_later = False
      for row, line in _rows(path):
        if row['step'] > resume_step:
          is_later = True
          continue
        self._written.update((row['step'], name) for name in row)
        if is_later:
          after.append(line)
        else:
          end += len(line)
      self._rows = path.open('ab')
      _cut(path, end, b''.join(after))
    self._events = tensorboardX.SummaryWriter(
      str(workdir), purge_step=resume_step + 1
    )

  def __enter__(self) -> 'MetricWriter':
    return self

  def __exit__(self, *unused_exception) -> None:
    if self._rows is not None:
      self._rows.close()
      self._events.close()

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
      self._events.add_scalar(name, float(value), step)
    self._events.flush()

  def written(self, step: int, prefix: str) -> bool:
    """Whether metrics with this prefix were written of a step, now or before."""
    return any(s == step and n.startswith(prefix) for s, n in self._written)


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


def _cut(path: pathlib.Path, end: int, after: bytes) -> None:
  """Replace the bytes after `end` by `after`, and keep whole lines of them.

  A kill at any moment loses no line: the next run cuts again.
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
