# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Where the shards of a command's stages are made: here, or on a Ray cluster.

`config.cluster` says which. A stage asks `executor` for it; a worker calls the same
stage by its name and gets the executor that serves the worker's shards.
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import functools
import importlib
import os
import sys
import threading
from typing import Any

import ml_collections

from experiments.engine import progress
from retrieval import searchers
from retrieval.searchers import ray_shards
from retrieval.store import executors, ray_cluster, ray_executor, verification


class _Current(threading.local):
  """The stage that runs in this thread, and a worker's executor."""

  stage: functools.partial | None = None
  serving: Any = None
  folders: tuple[str | os.PathLike, ...] = ()  # that all nodes must see


_CURRENT = _Current()
# Executors of the stage, whose workers wait for its next store.
_MADE: dict[tuple[ray_cluster.Cluster, int], executors.Remote] = {}


@dataclasses.dataclass(frozen=True)
class Stage:
  """A stage that other processes can call: a `serving.Stage`."""

  module: str
  name: str
  arguments: tuple
  verify: str  # `verification.mode`
  holders: ray_shards.Holders = ray_shards.Holders()

  @classmethod
  def of(cls, function: functools.partial) -> 'Stage':
    """Name the function of a module and its arguments.

    Raises:
      ValueError: for a function that another process cannot find by its name.
    """
    name = function.func.__qualname__
    if function.keywords or '<' in name:
      raise ValueError(
        f'{name}: expected a function of a module, with positional arguments.'
      )
    module = function.func.__module__
    if module == '__main__':  # python -m
      module = sys.modules['__main__'].__spec__.name
    return cls(
      module,
      name,
      function.args,
      verification.mode(),
    )

  def __getstate__(self) -> dict[str, Any]:
    """Name the actors that the driver has started by now."""
    return vars(self) | {'holders': searchers.holders().for_workers()}

  def __call__(self, serving: Any) -> None:
    """Call the stage in a worker, which serves its shards."""
    verification.choose(self.verify)
    searchers.hold_shards(self.holders)
    progress.be_silent()
    _CURRENT.serving = serving
    getattr(importlib.import_module(self.module), self.name)(*self.arguments)


def is_worker() -> bool:
  """Whether this thread calls a stage to make shards that a driver asks for."""
  return _CURRENT.serving is not None


@contextlib.contextmanager
def running(function: functools.partial) -> Iterator[None]:
  """Remember the stage while it runs, for the workers that help it."""
  before, _CURRENT.stage = _CURRENT.stage, function
  try:
    yield
  finally:
    _CURRENT.stage = before
    while _MADE:
      _MADE.popitem()[1].close()


def executor(
  config: ml_collections.ConfigDict, num_processes: int = 1
) -> executors.Executor:
  """Return what makes the shards of the stage that runs.

  Args:
    num_processes: of this machine, where `config.cluster` names no more.
  """
  if is_worker():
    return _CURRENT.serving
  settings = ray_cluster.Cluster(**config.cluster)
  count = max(settings.workers, num_processes)
  if not settings.address and count <= 1:
    return executors.Inline()
  key = (settings, 0 if settings.address else count)
  if key not in _MADE:
    _MADE[key] = _make(settings, count)
  return _MADE[key]


def workers(
  config: ml_collections.ConfigDict, root: str | os.PathLike
) -> executors.Remote:
  """Return the cluster's workers for makers of shards that can be pickled.

  Args:
    root: folder that all nodes must see.
  """
  check(config, root)
  settings = ray_cluster.Cluster(**config.cluster)
  return ray_executor.RayExecutor(settings, folders=(root,))


def _make(settings: ray_cluster.Cluster, count: int) -> executors.Remote:
  stage = Stage.of(_CURRENT.stage) if _CURRENT.stage else None
  if not settings.address:
    return executors.Processes(count, stage)
  return ray_executor.RayExecutor(settings, stage, _CURRENT.folders)


def hold_shards(config: ml_collections.ConfigDict) -> None:
  """Let the cluster of a config hold the shards of indices, if the config says so.

  Raises:
    ImportError: when Ray is not installed.
    ValueError: when there is no such cluster.
  """
  settings = ray_cluster.Cluster(**config.get('cluster', {}))
  address = settings.address if settings.hold_shards else ''
  if address:
    ray_cluster.connect(address)
  searchers.hold_shards(ray_shards.Holders(address))


def check(config: ml_collections.ConfigDict, root: str | os.PathLike) -> None:
  """Join the cluster of a config, whose nodes must see a folder.

  Raises:
    ImportError: when Ray is not installed.
    ValueError: when there is no such cluster, or a node does not see `root`.
  """
  if config.cluster.address:
    ray = ray_cluster.connect(config.cluster.address)
    ray_cluster.check_paths(ray, root)
    _CURRENT.folders = (root,)
