# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A Ray cluster: its settings, how a process joins it, and its executor of jobs.

Each worker of a job is an actor that unpickles the job's function once and then runs one
call after another. Nodes may come and go. All need the files of the job, the working
folder and the Python environment of the driver under the same paths; a node that lacks
them is left out.
"""

import collections
from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import itertools
import os
import pathlib
import signal
import socket
import sys
import threading
import time
from typing import Any

from absl import logging
import cloudpickle

from retrieval import settings
from retrieval.store import drafts, executors

# Whether Ray binds the machine's own address, which firewalls may close
_OWN_ADDRESS = 'RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER'
# Where Ray looks for the token of a cluster that asks for one
_TOKENS = ('RAY_AUTH_TOKEN', 'RAY_AUTH_TOKEN_PATH')
_TOKEN_FILE = pathlib.Path('~/.ray/auth_token')
_REACH_SEC = 10.0
# Of the environment, which child processes and workers of a cluster inherit
_SHARDS_AT = 'RETRIEVAL_SHARDS_CLUSTER'
_OWN_VARIABLES = 'RETRIEVAL_'  # of the environment, which workers get
_POLL_SEC = 2.0
_PATIENCE_SEC = 30.0  # between two lines about a lack of workers


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


class _Actor:
  """A worker on some node, in the driver's working folder."""

  def start(
    self,
    pickled: bytes,
    folder: str,
    marks: Sequence[str],
    environment: Mapping[str, str],
  ) -> None:
    """Check that the driver's folders are here, and enter the first."""
    for path in (folder, *marks):
      if not os.path.exists(path):
        import ray

        host = ray.util.get_node_ip_address()
        missing = path if path == folder else os.path.dirname(path)
        raise ValueError(
          f'{missing}: node {host} of the cluster does not see this folder; '
          'expected a path that all nodes see, such as one of a shared file system.'
        )
    os.chdir(folder)
    # A driver outside of the cluster does not send its sys.path.
    if folder not in sys.path:
      sys.path.insert(0, folder)
    os.environ.update(environment)
    self._function = executors.call_pickled(cloudpickle.loads, (pickled,))

  def run(self, *arguments) -> Any:
    """Return the result of a call."""
    return executors.call_pickled(self._function, arguments)


class RayExecutor(executors.Remote):
  """Runs calls on the workers of a Ray cluster."""

  def __init__(
    self,
    cluster: Cluster,
    folders: Sequence[str | os.PathLike] = (),
  ):
    """Join the cluster.

    Args:
      folders: what a node must see to work, beside the working folder; they are
        made if absent.

    Raises:
      ImportError: when Ray is not installed.
      ValueError: when there is no such cluster.
    """
    self._cluster, self._ray = cluster, connect(cluster.address)
    self._folders = [pathlib.Path(x).absolute() for x in folders]
    self._closed = False

  def close(self) -> None:
    """See `executors.Remote`."""
    self._closed = True

  def run(self, name, function, calls) -> Iterator[Any]:
    """See `executors.Executor`; a call that raises OSError runs again, too."""
    ray, calls, deaths = self._ray, enumerate(calls), collections.Counter()
    waiting: list[tuple[int, tuple]] = []  # at most one, and those lost
    idle: list[Any] = []  # workers
    # reference -> worker, and its call; None while it starts
    running: dict[Any, tuple[Any, tuple[int, tuple] | None]] = {}
    # Workers that could not start: they keep others off their node.
    left_out: list[Any] = []
    refusals: list[Exception] = []
    next_look, next_line = 0.0, time.monotonic() + _PATIENCE_SEC
    with contextlib.ExitStack() as stack:
      arguments = self._start_arguments(function, stack)

      def end():
        for worker in (*idle, *left_out, *(x for x, _ in running.values())):
          ray.kill(worker)

      stack.callback(end)
      while not self._closed:
        waiting += itertools.islice(calls, not waiting)
        if not waiting and not any(call for _, call in running.values()):
          return
        if waiting and idle:
          worker, call = idle.pop(), waiting.pop(0)
          running[worker.run.remote(*call[1])] = worker, call
          continue
        now = time.monotonic()
        if waiting and now > next_look:
          next_look = now + _POLL_SEC
          room = self._room(len(left_out))
          if not room and not running and refusals:
            raise refusals[-1] from None
          for _ in range(room - len(running)):
            worker = self._new_worker()
            running[worker.start.remote(*arguments)] = worker, None
          if now > next_line and not any(x for _, x in running.values()):
            next_line = now + _PATIENCE_SEC
            needs, there = self._cluster.needs, ray.cluster_resources()
            logging.warning(
              '%s: no worker of %s yet, of %s.', name, needs, there
            )
        if not running:
          time.sleep(_POLL_SEC)
          continue
        done, _ = ray.wait([*running], num_returns=1, timeout=_POLL_SEC)
        for reference in done:
          worker, call = running.pop(reference)
          try:
            result = ray.get(reference)
          except ray.exceptions.RayError as error:
            next_look = 0.0
            cause = getattr(error, 'cause', None)
            if call is None and isinstance(cause, Exception):
              left_out.append(worker)
              if str(cause) not in map(str, refusals):
                logging.warning('%s: a node is left out: %s', name, cause)
              refusals.append(cause)
              continue
            if isinstance(cause, Exception) and not isinstance(cause, OSError):
              raise cause from None
            logging.warning('%s: %s', name, ' '.join(str(error).split())[-300:])
            ray.kill(worker)
            executors.count_death(name, deaths, call or (-1, ('start',)))
            waiting[:0] = [call] if call else []
          else:
            idle.append(worker)
            if call:
              yield result
            else:  # only failed starts in a row end a job
              deaths.pop(-1, None)
      raise executors.JobError(f'{name}: its workers were ended.')

  def _start_arguments(
    self, function: Callable[..., Any], stack: contextlib.ExitStack
  ) -> tuple:
    """Return the arguments of `_Actor.start`; the stack removes the marks."""
    marks = []
    for folder in self._folders:
      folder.mkdir(parents=True, exist_ok=True)
      mark = drafts.beside(folder / 'seen')  # a killed driver's is removed
      mark.touch()
      stack.callback(mark.unlink, missing_ok=True)
      marks.append(str(mark))
    own = {x: y for x, y in os.environ.items() if x.startswith(_OWN_VARIABLES)}
    # XLA's threads; Ray sets those of OpenMP.
    own['NPROC'] = str(max(1, int(self._cluster.cpus_per_worker)))
    pickled = self._ray.put(cloudpickle.dumps(function))
    return pickled, os.getcwd(), marks, own

  def _room(self, num_left_out: int) -> int:
    """Return the number of workers that the cluster has room for."""
    needs = self._cluster.needs
    room = sum(
      int(min(node['Resources'].get(x, 0) // n for x, n in needs.items()))
      for node in self._ray.nodes()
      if node['Alive']
    )
    room = max(0, room - num_left_out)
    return min(room, self._cluster.workers or room)

  def _new_worker(self) -> Any:
    needs = self._cluster.needs
    return (
      self._ray.remote(_Actor)
      .options(
        num_cpus=needs['CPU'],
        num_gpus=needs.get('GPU', 0),
        resources={x: needs[x] for x in needs if x not in ('CPU', 'GPU')},
        scheduling_strategy='SPREAD',
        max_restarts=0,
      )
      .remote()
    )
