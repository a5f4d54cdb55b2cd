# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Builds index versions from snapshots: here, in a thread, in another process.

Trainer and builders of other processes meet in the index folder alone:
snapshots/<step>.safetensors are parameters to build from, failures/<version>.txt
what could not be built and why, <step>-<hash>/ what was.
"""

from collections.abc import Callable
import dataclasses
import functools
import multiprocessing
import pathlib
import threading
import time
from typing import Any

import jax
import numpy as np

from experiments.engine import progress
from realm_jax.data import examples
from realm_jax.nn import config as config_lib
from realm_jax.serving import serving
from retrieval.index import index as index_lib
from retrieval.index import index_versions
from retrieval.index import reuse
from retrieval.nn import sharding
from retrieval.store import store
from retrieval.text import blocks as blocks_lib

_WAIT_SEC = 1.0
_SNAPSHOTS = 'snapshots'
_FAILURES = 'failures'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Builder:
  """Makes index versions from snapshots of the embedder.

  Attributes:
    model: sizes of the model.
    layout: lengths of rows.
    blocks: what is retrieved.
    folder: where versions are published.
    index: how an index is built.
    batch_tokens: of the embedder's batches.
    devices: where to embed; None is all of this process's.
    together: whether all processes of a distributed run build, each its share.
    sources: folders of other runs' versions. Where one has the vectors of the
      first version of `folder`, that is taken over and not built.
  """

  model: config_lib.RealmConfig
  layout: examples.Layout
  blocks: blocks_lib.BlockStore
  folder: index_versions.VersionFolder
  index: index_lib.IndexConfig
  batch_tokens: int = 0
  devices: tuple[jax.Device, ...] | None = None
  together: bool = False
  sources: tuple[pathlib.Path, ...] = ()

  def build(self, step: int, params: Any) -> str:
    """Builds or takes over the version of a snapshot and returns its name.

    Args:
      step: of the snapshot.
      params: `serving.embedder_params`, as host arrays.

    Raises:
      ValueError: for vectors that are not finite.
    """
    if name := self._adopt(step, params):
      return name
    embed = serving.BlockEmbedder(
      self.model,
      self.layout,
      self.blocks,
      params,
      batch_tokens=self.batch_tokens,
      devices=self.devices,
    )
    index, count = 0, 1
    if self.together:
      index, count = jax.process_index(), jax.process_count()
    with progress.bar(f'index of step {step}', 'blocks') as update:
      try:
        while not (
          name := self._try(step, params, embed, index, count, update)
        ):
          time.sleep(_WAIT_SEC)
      except ValueError as error:
        name = index_versions.version_name(step, params, self.blocks)
        write_failure(self.folder.root, name, str(error))
        raise
    return name

  def _adopt(self, step: int, params: Any) -> str | None:
    """Takes the first version over; what follows is of newer parameters."""
    for source in self.sources if not self.folder.names() else ():
      name = reuse.adopt(
        *(self.folder, step, params, self.blocks, source, self.index),
        part=serving.block_embedder_params,
      )
      if name:
        return name
    return None

  def _try(self, step, params, embed, index, count, update) -> str | None:
    """Does this process's share; the name, once the version stands."""
    name = self.folder.build(
      step,
      params,
      self.blocks,
      embed,
      self.index,
      process_index=index,
      process_count=count,
      progress=update,
    )
    wanted = index_versions.version_name(step, params, self.blocks)
    failures = read_failures(self.folder.root)
    if name is None and wanted in failures:
      raise ValueError(failures[wanted])
    return name


def snapshot(params: Any) -> dict:
  """The embedder's parameters as host arrays, gathered from all devices.

  Args:
    params: of a model; arrays of this host, or sharded over a mesh of several:
      then all of their processes must call this.
  """
  params = serving.embedder_params(params)
  leaves = jax.tree.leaves(params)
  if leaves and not getattr(leaves[0], 'is_fully_addressable', True):
    params = _gather(leaves[0].sharding.mesh)(params)
  return jax.tree.map(np.asarray, jax.device_get(params))


@functools.lru_cache
def _gather(mesh: jax.sharding.Mesh) -> Callable[[Any], Any]:
  """Compiled once for a mesh, not for each snapshot."""
  return jax.jit(lambda x: x, out_shardings=sharding.replicated(mesh))


class NoBuilder:
  """Nobody builds in the background, or somebody else's process does."""

  def start(self) -> None:
    """Nothing to start."""

  def offer(self, step: int, take: Callable[[], dict]) -> bool:
    """The snapshots are the run's checkpoints."""
    del step, take
    return True

  def errors(self) -> list[Exception]:
    """Nothing is known of others' errors."""
    return []

  def close(self) -> None:
    """Nothing to stop."""


class ThreadBuilder(NoBuilder):
  """Builds in a thread of this process, one snapshot at a time."""

  def __init__(self, builder: Builder):
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
        self._builder.build(step, params)
      except Exception as error:  # noqa: BLE001 - reported by the trainer
        self._errors.append(error)

    self._thread = threading.Thread(target=work, daemon=True)
    self._thread.start()
    return True

  def errors(self) -> list[Exception]:
    """What went wrong since the last call."""
    found, self._errors = self._errors, []
    return found

  def close(self) -> None:
    """Leaves an unfinished version to the next run, which completes it."""


class ProcessBuilder(NoBuilder):
  """A child process that follows snapshots which are written for it."""

  def __init__(
    self, root: pathlib.Path, start: Callable[[], multiprocessing.Process]
  ):
    self._root = root
    self._start = start
    self._child: multiprocessing.Process | None = None
    self._seen = set(read_failures(root))

  def start(self) -> None:
    """Starts the child."""
    if jax.process_index() == 0:
      self._child = self._start()

  def offer(self, step: int, take: Callable[[], dict]) -> bool:
    """Writes a snapshot; the child takes the newest when it is free."""
    params = take()
    if jax.process_index() == 0:
      write_snapshot(self._root, step, params)
    return True

  def errors(self) -> list[Exception]:
    """Failures the child wrote down; its death, after which it starts anew."""
    found = []
    for name, text in read_failures(self._root).items():
      if name not in self._seen:
        self._seen.add(name)
        found.append(ValueError(text))
    if self._child is not None and not self._child.is_alive():
      code = self._child.exitcode
      found.append(RuntimeError(f'the builder died, exit code {code}'))
      self.start()
    return found

  def close(self) -> None:
    """Ends the child; what it has embedded stays on disk."""
    if self._child is not None:
      self._child.terminate()
      self._child.join(10)


def write_snapshot(root: pathlib.Path, step: int, params: dict) -> None:
  """Writes parameters for a builder; only the newest two snapshots stay."""
  folder = root / _SNAPSHOTS
  folder.mkdir(parents=True, exist_ok=True)
  index_versions.write_params(folder / f'{step:010d}.safetensors', params)
  for old in sorted(folder.glob('*.safetensors'))[:-2]:
    old.unlink(missing_ok=True)


def newest_snapshot(root: pathlib.Path) -> tuple[int, pathlib.Path] | None:
  """Step and file of the newest snapshot."""
  files = sorted((root / _SNAPSHOTS).glob('[0-9]*.safetensors'))
  return (int(files[-1].stem), files[-1]) if files else None


def write_failure(root: pathlib.Path, name: str, message: str) -> None:
  """Leaves word of a version that could not be built."""
  file = root / _FAILURES / f'{name}.txt'
  file.parent.mkdir(parents=True, exist_ok=True)
  store.write_atomically(file, message.encode())


def read_failures(root: pathlib.Path) -> dict[str, str]:
  """Version that could not be built -> why."""
  files = sorted((root / _FAILURES).glob('[0-9]*.txt'))
  return {file.stem: file.read_text() for file in files}
