# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Where the shards of a command's stages are made: here, or on a Ray cluster."""

import os
from typing import Any

from retrieval.store import executors, ray_cluster


def _settings(config: Any) -> ray_cluster.Cluster:
  """Return `config.cluster`; commands without one run in this process."""
  return getattr(config, 'cluster', ray_cluster.Cluster())


def executor(
  config: Any, root: str | os.PathLike, num_processes: int = 1
) -> executors.Executor:
  """Return what makes shards, as `config.cluster` says.

  Args:
    root: folder of the shards, which all nodes of a cluster must see.
    num_processes: of this machine, where the config names no more.
  """
  settings = _settings(config)
  if settings.address:
    return ray_cluster.RayExecutor(settings, [root])
  return executors.local(max(settings.workers, num_processes))


def hold_shards(config: Any) -> None:
  """Let the cluster of a config hold the shards of indices, if the config says so."""
  settings = _settings(config)
  address = settings.address if settings.hold_shards else ''
  if address:
    ray_cluster.connect(address)
  ray_cluster.hold_shards(address)
