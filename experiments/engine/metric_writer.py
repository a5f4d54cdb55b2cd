# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Metrics to `metrics.jsonl` and TensorBoard event files in the workdir.

Each row of `metrics.jsonl` is an object with 'step'. A resumed run drops the
rows after the step that it resumes from, so that each step has one row.
"""

from collections.abc import Mapping
import json
import math
import os
import pathlib

import jax
import tensorboardX

from retrieval.store import store

FILE = 'metrics.jsonl'


class MetricWriter:
  """Writes scalars; on every process but the first it does nothing."""

  def __init__(self, workdir: str, *, resume_step: int = 0):
    """Open the files.

    Args:
      workdir: the run's folder, created if absent.
      resume_step: rows of later steps, left by a killed run, are dropped.
    """
    self._events = self._rows = None
    self._written: set[tuple[int, str]] = set()
    if jax.process_index():
      return
    path = pathlib.Path(workdir) / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [row for row in read(path) if row['step'] <= resume_step]
    self._written.update((r['step'], name) for r in rows for name in r)
    text = ''.join(json.dumps(row) + '\n' for row in rows)
    store.write_atomically(path, text)
    self._rows = path.open('a', encoding='utf-8')
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
    self._rows.write(json.dumps(row) + '\n')
    self._rows.flush()
    for name, value in values.items():
      self._events.add_scalar(name, float(value), step)

  def written(self, step: int, prefix: str) -> bool:
    """Whether metrics with this prefix were written of a step, now or before."""
    return any(s == step and n.startswith(prefix) for s, n in self._written)


def read(path: str | os.PathLike) -> list[dict[str, float]]:
  """Read the rows of a `metrics.jsonl`; a half-written last row is left out.

  Args:
    path: the file, or the workdir it is in; an absent file has no rows.

  Raises:
    ValueError: if another row than the last is not JSON.
  """
  path = pathlib.Path(path)
  path = path / FILE if path.is_dir() else path
  if not path.exists():
    return []
  rows = []
  lines = path.read_text(encoding='utf-8').splitlines(keepends=True)
  for number, line in enumerate(lines, 1):
    try:
      rows.append(json.loads(line))
    except json.JSONDecodeError as error:
      if number == len(lines) and not line.endswith('\n'):
        break
      raise ValueError(f'{path}, line {number}: not JSON: {error}') from error
  return rows
