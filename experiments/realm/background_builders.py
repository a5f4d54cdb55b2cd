# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Builders that work while training goes on: in a thread, in another process.

Trainer and builders of other processes share the index folder alone:
snapshots/<step>.safetensors are parameters to build from, failures/<version>.txt
says why a version could not be built, <step>-<hash>/ is a version.
"""

import abc
from collections.abc import Callable
import functools
import multiprocessing
import pathlib
import threading
from typing import Any

import jax

from experiments.engine import progress
from realm_jax.serving import index_builder
from retrieval.index import index_versions

_SNAPSHOTS = 'snapshots'


def build(builder: index_builder.Builder, step: int, params: Any) -> str:
  """Build a version in this thread, with a progress bar; return its name."""
  with progress.bar(f'index of step {step}', 'blocks') as update:
    return builder.build(step, params, update)


class BackgroundBuilder(abc.ABC):
  """Builds versions of the snapshots that the trainer offers."""

  def start(self) -> None:  # noqa: B027
    """Start the builder, where it needs that."""

  @abc.abstractmethod
  def offer(self, step: int, take: Callable[[], dict]) -> bool:
    """Offer a snapshot; return whether it is taken.

    Args:
      take: returns the snapshot; only called where it is wanted.
    """

  @abc.abstractmethod
  def errors(self) -> list[Exception]:
    """Return the errors since the last call."""

  def close(self) -> None:  # noqa: B027
    """Stop the builder; the next run completes an unfinished version."""


class ExternalBuilder(BackgroundBuilder):
  """A builder of its own that reads the run's checkpoints, or no builder."""

  def offer(self, step: int, take: Callable[[], dict]) -> bool:
    """Take every step: the checkpoints are its snapshots."""
    del step, take
    return True

  def errors(self) -> list[Exception]:
    """Return no errors: those of another command are not known here."""
    return []


class ThreadBuilder(BackgroundBuilder):
  """Builds in a thread of this process, one snapshot at a time."""

  def __init__(self, builder: index_builder.Builder):
    self._builder = builder
    self._thread: threading.Thread | None = None
    self._errors: list[Exception] = []

  def offer(self, step: int, take: Callable[[], dict]) -> bool:
    """Starts to build, unless the last snapshot is still being built."""
    if self._thread is not None and self._thread.is_alive():
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


class ProcessBuilder(BackgroundBuilder):
  """A child process that follows snapshots which are written for it."""

  def __init__(
    self, root: pathlib.Path, start: Callable[[], multiprocessing.Process]
  ):
    self._root = root
    self._start = start
    self._child: multiprocessing.Process | None = None
    self._seen = set(index_builder.read_failures(root))

  def start(self) -> None:
    """Start the child."""
    if jax.process_index() == 0:
      self._child = self._start()

  def offer(self, step: int, take: Callable[[], dict]) -> bool:
    """Write a snapshot; the child takes the newest when it is free."""
    params = take()
    if jax.process_index() == 0:
      write_snapshot(self._root, step, params)
    return True

  def errors(self) -> list[Exception]:
    """Return failures that the child wrote; restart a child that died."""
    found = []
    for name, text in index_builder.read_failures(self._root).items():
      if name not in self._seen:
        self._seen.add(name)
        found.append(ValueError(text))
    if self._child is not None and not self._child.is_alive():
      code = self._child.exitcode
      found.append(RuntimeError(f'the builder died, exit code {code}'))
      self.start()
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
  index_versions.write_params(folder / f'{step:010d}.safetensors', params)
  for old in sorted(folder.glob('*.safetensors'))[:-2]:
    old.unlink(missing_ok=True)


def newest_snapshot(
  root: pathlib.Path,
) -> tuple[int, Callable[[], Any]] | None:
  """Return step and reader of the newest snapshot that the trainer wrote."""
  files = sorted((root / _SNAPSHOTS).glob('[0-9]*.safetensors'))
  if not files:
    return None
  read = functools.partial(index_versions.read_params, files[-1])
  return int(files[-1].stem), read
