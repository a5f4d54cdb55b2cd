# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A real Ray cluster of several nodes on one machine, at its loopback device."""

from collections.abc import Iterator
import contextlib
import os

from retrieval.store import ray_cluster

# Ray takes 127.0.0.1 at its word; workers are as urgent as other processes; a dead
# node is noticed after seconds; nothing is reported to Ray's makers.
_ENVIRONMENT = {
  'RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER': '0',
  'RAY_worker_niceness': '0',
  'RAY_health_check_initial_delay_ms': '1000',
  'RAY_health_check_period_ms': '1000',
  'RAY_health_check_failure_threshold': '3',
  'RAY_USAGE_STATS_ENABLED': '0',
}


class Nodes:
  """The nodes of a cluster; the first one runs no tasks."""

  def __init__(self, cluster):
    self._cluster = cluster
    self._workers = []

  @property
  def address(self) -> str:
    """Address of the cluster, for `config.cluster.address`."""
    return self._cluster.address

  def add(self, num_cpus: int = 1) -> None:
    """Add a node, which is a process of this machine."""
    node = self._cluster.add_node(
      num_cpus=num_cpus, node_ip_address='127.0.0.1', include_dashboard=False
    )
    if num_cpus:
      self._workers.append(node)

  def kill(self, number: int = -1) -> None:
    """Kill a node that runs tasks with signal 9."""
    self._cluster.remove_node(self._workers.pop(number), allow_graceful=False)


@contextlib.contextmanager
def cluster(num_workers: int) -> Iterator[Nodes]:
  """Start a cluster of a head and some nodes of one core each, and end it."""
  for name, value in _ENVIRONMENT.items():
    os.environ.setdefault(name, value)
  ray = ray_cluster.import_ray()
  from ray import cluster_utils

  made = cluster_utils.Cluster()
  try:
    nodes = Nodes(made)
    nodes.add(0)
    for _ in range(num_workers):
      nodes.add()
    yield nodes
  finally:
    ray.shutdown()
    made.shutdown()
