# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Builders that work while training goes on: in a thread, in another process.

Trainer and builders of other processes share the index folder alone:
snapshots/<step>.safetensors are parameters to build from, failures/<version>.txt
says why a version could not be built, <step>-<hash>/ is a version.
"""

from collections.abc import Callable
import functools
import multiprocessing
import pathlib
import threading
from typing import Any

import jax
from jax.experimental import multihost_utils
import numpy as np

from experiments.engine import progress
from realm_jax.serving import index_builder
from retrieval.index import index_versions, snapshots

_SNAPSHOTS = 'snapshots'


def build(builder: index_builder.Builder, step: int, params: Any) -> str:
  """Build a version in this thread, with a progress bar; return its name."""
  with progress.bar(f'index of step {step}', 'blocks') as update:
    return builder.build(step, params, update)


class NoBuilder:
  """No builder, or a command of its own that reads the run's checkpoints."""

  def start(self) -> None:
    """Start the builder, where it needs that."""

  def offer(self, step: int, take: Callable[[], dict]) -> bool:
    """Offer the snapshot that `take` returns; return whether it is taken."""
    del step, take
    return True

  def errors(self) -> list[Exception]:
    """Return the errors since the last call."""
    return []

  def close(self) -> None:
    """Stop the builder; the next run completes an unfinished version."""


class ThreadBuilder(NoBuilder):
  """Builds in a thread of each process, one snapshot at a time."""

  def __init__(self, builder: index_builder.Builder):
    self._builder = builder
    self._thread: threading.Thread | None = None
    self._errors: list[Exception] = []

  def offer(self, step: int, take: Callable[[], dict]) -> bool:
    """Start to build, unless a process still builds the last snapshot."""
    busy = self._thread is not None and self._thread.is_alive()
    if jax.process_count() > 1:  # all of them call this together
      busy = multihost_utils.process_allgather(np.asarray(busy)).any()
    if busy:
      return False
    params = take()

    def work():
      try:
        build(self._builder, step, params)
      except Exception as error:  # noqa: BLE001 - reported by the trainer
        self._errors.append(error)

    self._thread = threading.Thread(target=work, daemon=True)
    self._thread.start()
    return True

  def errors(self) -> list[Exception]:
    """Return the errors since the last call."""
    found, self._errors = self._errors, []
    return found


class ProcessBuilder(NoBuilder):
  """A child process that follows snapshots which are written for it."""

  def __init__(
    self, root: pathlib.Path, start: Callable[[], multiprocessing.Process]
  ):
    self._root, self._start = root, start
    self._child: multiprocessing.Process | None = None
    self._seen: set[str] = set()
    self._errors: list[Exception] = []

  def start(self) -> None:
    """Start the child, unless it lives."""
    if self._child is None and jax.process_index() == 0:
      self._child = self._start()

  def offer(self, step: int, take: Callable[[], dict]) -> bool:
    """Write a snapshot; the child, or a new one, takes the newest when free."""
    params = take()
    if jax.process_index() == 0:
      try:
        write_snapshot(self._root, step, params)
      except OSError as error:
        self._errors.append(error)
    self.start()
    return True

  def errors(self) -> list[Exception]:
    """Return the errors since the last call: of snapshots, and of the child."""
    found, self._errors = self._errors, []
    failures = index_builder.read_failures(self._root)
    found += [ValueError(failures[x]) for x in failures if x not in self._seen]
    self._seen |= {*failures}
    if self._child is not None and not self._child.is_alive():
      code = self._child.exitcode
      text = f'the builder died, exit code {code}; the next snapshot starts it'
      found.append(ChildProcessError(text))
      self._child = None
    return found

  def close(self) -> None:
    """End the child; what it has embedded stays on disk."""
    if self._child is not None:
      self._child.terminate()
      self._child.join(10)


def write_snapshot(root: pathlib.Path, step: int, params: dict) -> None:
  """Write parameters for a builder; only the newest two snapshots stay."""
  folder = root / _SNAPSHOTS
  folder.mkdir(parents=True, exist_ok=True)
  snapshots.write(folder / f'{step:010d}.safetensors', params)
  for old in _snapshots(root)[:-2]:
    old.unlink(missing_ok=True)


def newest_snapshot(
  root: pathlib.Path,
) -> tuple[int, Callable[[], Any]] | None:
  """Return step and reader of the newest snapshot that the trainer wrote."""
  files = _snapshots(root)
  if not files:
    return None
  return int(files[-1].stem), functools.partial(snapshots.read, files[-1])


def _snapshots(root: pathlib.Path) -> list[pathlib.Path]:
  return sorted((root / _SNAPSHOTS).glob('[0-9]*.safetensors'))


def forget_later(
  folder: index_versions.VersionFolder, step: int, versions: bool
) -> None:
  """Remove what a killed run left of steps after `step`, and its failures.

  Its snapshots would displace those of this run. Process 0 removes them; the
  others wait.

  Args:
    versions: whether index versions go, too. Those of a synchronous run are the
      ones that this run would build.
  """
  if jax.process_index() == 0:
    for file in _snapshots(folder.root):
      if int(file.stem) > step:
        file.unlink(missing_ok=True)
    if versions:
      folder.remove_later(step)
    index_builder.remove_failures(folder.root)
  wait_for_all('forget_later')


def wait_for_all(name: str) -> None:
  """Wait until all processes of a distributed run are here."""
  if jax.process_count() > 1:
    multihost_utils.sync_global_devices(name)
