# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Settings of a Ray cluster, which configs hold without Ray's module being imported."""

import dataclasses
import os

from retrieval import settings

# Of the environment, which child processes and workers of a cluster inherit
_SHARDS_AT = 'RETRIEVAL_SHARDS_CLUSTER'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cluster:
  """A Ray cluster and the workers of a job on it."""

  # auto: the cluster that this machine belongs to; ray://HOST:PORT or HOST:PORT;
  # local: a cluster of this machine alone; '': no cluster, processes of this machine
  address: str = ''
  # processes that share a job; 0: all that the cluster has room for, or without a
  # cluster this process
  workers: settings.Count = 0
  cpus_per_worker: settings.Positive = 1.0
  gpus_per_worker: settings.NotNegative = 0.0
  tpus_per_worker: settings.NotNegative = 0.0
  # whether actors hold the shards of an index for every search of the command;
  # else each process that searches opens them
  hold_shards: bool = False

  def __post_init__(self):
    settings.check(self)
    if self.hold_shards and not self.address:
      raise settings.SettingsError(
        'address', '', 'that of a Ray cluster where hold_shards is set'
      )

  @property
  def needs(self) -> dict[str, float]:
    """Ray's resources of one worker."""
    kinds = ('CPU', 'GPU', 'TPU')
    needs = {x: getattr(self, f'{x.lower()}s_per_worker') for x in kinds}
    return {name: number for name, number in needs.items() if number}


def hold_shards(address: str) -> None:
  """Let a cluster hold the shards of searchers opened from now on; '': this process."""
  os.environ[_SHARDS_AT] = address


def shards_at() -> str:
  """Return the address of the last `hold_shards`, '' for none."""
  return os.environ.get(_SHARDS_AT, '')
