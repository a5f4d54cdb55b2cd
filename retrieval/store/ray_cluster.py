# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A Ray cluster: its settings, and how a process joins it."""

import dataclasses
import os
import pathlib
import signal
import socket
import threading
from typing import Any

from retrieval import settings

# Whether Ray binds the machine's own address, which firewalls may close
_OWN_ADDRESS = 'RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER'
# Where Ray looks for the token of a cluster that asks for one
_TOKENS = ('RAY_AUTH_TOKEN', 'RAY_AUTH_TOKEN_PATH')
_TOKEN_FILE = pathlib.Path('~/.ray/auth_token')
_REACH_SEC = 10.0
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
    """Check the fields."""
    settings.check(self)
    if self.hold_shards and not self.address:
      raise settings.SettingsError(
        'address', '', 'that of a Ray cluster where hold_shards is set'
      )

  @property
  def needs(self) -> dict[str, float]:
    """Ray's resources of one worker."""
    kinds = ('CPU', 'GPU', 'TPU')
    found = {x: getattr(self, f'{x.lower()}s_per_worker') for x in kinds}
    return {name: number for name, number in found.items() if number}


def hold_shards(address: str) -> None:
  """Let a cluster hold the shards of searchers opened from now on; '': this process."""
  os.environ[_SHARDS_AT] = address


def shards_at() -> str:
  """Return the address that `hold_shards` was given last, '' for none."""
  return os.environ.get(_SHARDS_AT, '')


def import_ray():
  """Return the module of Ray; ImportError names the extra that installs it."""
  try:
    import ray
  except ImportError:
    raise ImportError(
      "A Ray cluster needs Ray: pip install 'realm-retro-jax[cluster]'."
    ) from None
  return ray


def connect(address: str):
  """Join a cluster, unless this process has; return the module of Ray.

  A cluster of this machine alone, at 127.0.0.1 or local, uses no other address. The
  answer of this process to SIGTERM stays what it was.

  Raises:
    ValueError: when there is no cluster at `address`.
  """
  if address == 'local' or '127.0.0.1' in address:
    os.environ.setdefault(_OWN_ADDRESS, '0')  # read when Ray is imported
  has_token = any(map(os.environ.get, _TOKENS))
  if address.startswith('ray://') and (
    has_token or _TOKEN_FILE.expanduser().exists()
  ):
    # Ray's client does not look for the token by itself.
    os.environ.setdefault('RAY_AUTH_MODE', 'token')
  ray = import_ray()
  if ray.is_initialized():
    return ray
  given: dict[str, Any] = {'logging_level': 'WARNING', 'log_to_driver': False}
  if address == 'local':
    os.environ.setdefault('RAY_USAGE_STATS_ENABLED', '0')
    given['include_dashboard'] = False
  before = signal.getsignal(signal.SIGTERM)
  try:
    host, _, port = address.removeprefix('ray://').rpartition(':')
    if port.isdigit():  # Ray waits long where nothing answers
      where = host.strip('[]'), int(port)
      socket.create_connection(where, _REACH_SEC).close()
    ray.init(address, **given)
  except (ConnectionError, RuntimeError, OSError) as error:
    text = ' '.join(str(error).split())[:300]
    raise ValueError(
      f'cluster.address={address!r}: no Ray cluster there ({text}); expected '
      'auto on one of its nodes, ray://HOST:PORT, or local.'
    ) from None
  finally:
    if threading.current_thread() is threading.main_thread():
      signal.signal(signal.SIGTERM, before)
  return ray
