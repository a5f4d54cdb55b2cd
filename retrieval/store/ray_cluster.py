# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A Ray cluster: how a process joins it, and its executor of jobs.

Each call of a job is a task of Ray, which places it and runs it again if its worker
dies. Nodes may come and go. All need the files of the job, the working folder and the
Python environment of the driver under the same paths; a node that lacks them is left
out.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
import contextlib
import itertools
import os
import pathlib
import secrets
import signal
import socket
import sys
import threading
import time
from typing import Any, NamedTuple

from absl import logging
import cloudpickle

from retrieval.store import cluster_settings, drafts, executors

# Whether Ray binds the machine's address, which firewalls may close
_BINDS_ANY_ADDRESS = 'RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER'
# Where Ray looks for the token of a cluster that asks for one
_TOKENS = ('RAY_AUTH_TOKEN', 'RAY_AUTH_TOKEN_PATH')
_TOKEN_FILE = pathlib.Path('~/.ray/auth_token')
_REACH_SEC = 10.0
_OUR_VARIABLES = 'RETRIEVAL_'  # of the environment, which workers get
_POLL_SEC = 2.0
_PATIENCE_SEC = 30.0  # between two lines about a lack of workers


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
    os.environ.setdefault(_BINDS_ANY_ADDRESS, '0')  # read when Ray is imported
  has_token = any(map(os.environ.get, _TOKENS))
  if address.startswith('ray://') and (
    has_token or _TOKEN_FILE.expanduser().exists()
  ):
    # Ray's client does not look for the token by itself.
    os.environ.setdefault('RAY_AUTH_MODE', 'token')
  ray = import_ray()
  if ray.is_initialized():
    return ray
  options: dict[str, Any] = {'logging_level': 'WARNING', 'log_to_driver': False}
  if address == 'local':
    os.environ.setdefault('RAY_USAGE_STATS_ENABLED', '0')
    options['include_dashboard'] = False
  before = signal.getsignal(signal.SIGTERM)
  try:
    host, _, port = address.removeprefix('ray://').rpartition(':')
    if port.isdigit():  # Ray waits long where nothing answers
      where = host.strip('[]'), int(port)
      socket.create_connection(where, _REACH_SEC).close()
    ray.init(address, **options)
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


class _RefusalError(ValueError):
  """A node does not see a folder; arguments are the node and a message."""


# Of the latest job of this worker: its number, and its function
_current: list[Any] = []


def _run(job: '_Job', arguments: tuple) -> Any:
  """Return the result of a call, in a worker."""
  import ray

  if _current[:1] != [job.number]:
    node = ray.get_runtime_context().get_node_id()
    for path in (job.folder, *job.marks):
      if not os.path.exists(path):
        missing = path if path == job.folder else os.path.dirname(path)
        host = ray.util.get_node_ip_address()
        raise _RefusalError(
          node,
          f'{missing}: node {host} of the cluster does not see this folder; '
          'expected a path that all nodes see, such as one of a shared file '
          'system.',
        )
    os.chdir(job.folder)
    # A driver outside of the cluster does not send its sys.path.
    if job.folder not in sys.path:
      sys.path.insert(0, job.folder)
    os.environ.update(job.environment)
    pickled = ray.get(job.function[0])
    function = executors.call_pickled(cloudpickle.loads, (pickled,))
    _current[:] = [job.number, function]
  return executors.call_pickled(_current[1], arguments)


class _Job(NamedTuple):
  """All that a worker needs to run the calls of a job."""

  number: str
  function: list[Any]  # one reference to it, pickled
  folder: str  # of the driver, which a worker enters
  marks: list[str]  # files that a node must see
  environment: dict[str, str]  # variables of a worker


class RayExecutor(executors.Executor):
  """Runs calls as tasks of a Ray cluster, which runs those of dead workers again."""

  def __init__(
    self,
    cluster: cluster_settings.Cluster,
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

  def run(self, name, function, calls) -> Iterator[Any]:
    """See `executors.Executor`; a call that raises OSError runs again, too."""
    ray, calls = self._ray, enumerate(calls)
    waiting: list[tuple[int, tuple]] = []
    running: dict[Any, tuple[int, tuple]] = {}  # reference -> call
    refusals: dict[str, str] = {}  # node that is left out -> reason
    next_line = time.monotonic() + _PATIENCE_SEC
    with contextlib.ExitStack() as stack:
      job = self._job(function, stack)
      stack.callback(lambda: [ray.cancel(x, force=True) for x in running])
      while True:
        workers = self._num_workers(refusals)
        if not workers and refusals and not running:
          raise ValueError([*refusals.values()][-1])
        room = self._cluster.workers or 2 * max(1, workers)
        missing = max(0, room - len(running) - len(waiting))
        waiting += itertools.islice(calls, missing)
        while waiting and len(running) < room:
          call = waiting.pop(0)
          running[self._task(refusals).remote(job, call[1])] = call
        if not running:
          return
        if not workers and time.monotonic() > next_line:
          next_line = time.monotonic() + _PATIENCE_SEC
          needs, there = self._cluster.needs, ray.cluster_resources()
          logging.warning('%s: no worker of %s yet, of %s.', name, needs, there)
        done, _ = ray.wait([*running], num_returns=1, timeout=_POLL_SEC)
        for reference in done:
          call = running.pop(reference)
          try:
            result = ray.get(reference)
          except ray.exceptions.RayError as error:
            cause = getattr(error, 'cause', None)
            if isinstance(cause, _RefusalError):
              refusals[cause.args[0]] = cause.args[1]
              logging.warning('Node %s is left out: %s', *cause.args)
              waiting.insert(0, call)
              continue
            if isinstance(cause, Exception) and not isinstance(cause, OSError):
              raise cause from None
            raise executors.died_too_often(name, call, str(error)) from None
          yield result

  def _task(self, refusals: Collection[str]) -> Any:
    """Return the remote function, for nodes that are not left out."""
    needs = self._cluster.needs
    left_out = {}
    if refusals:
      left_out = {'ray.io/node-id': f'!in({",".join(refusals)})'}
    return self._ray.remote(_run).options(
      num_cpus=needs['CPU'],
      num_gpus=needs.get('GPU', 0),
      resources={x: needs[x] for x in needs if x not in ('CPU', 'GPU')},
      scheduling_strategy='SPREAD',
      label_selector=left_out,
      max_retries=executors.MOST_DEATHS - 1,
      retry_exceptions=[OSError],
    )

  def _job(
    self, function: Callable[..., Any], stack: contextlib.ExitStack
  ) -> _Job:
    """Describe a job to its workers; the stack removes the marks."""
    marks = []
    for folder in self._folders:
      folder.mkdir(parents=True, exist_ok=True)
      mark = drafts.beside(folder / 'seen')  # a killed driver's is removed
      mark.touch()
      stack.callback(mark.unlink, missing_ok=True)
      marks.append(str(mark))
    environment = {
      x: y for x, y in os.environ.items() if x.startswith(_OUR_VARIABLES)
    }
    # XLA's threads; Ray sets those of OpenMP.
    environment['NPROC'] = str(max(1, int(self._cluster.cpus_per_worker)))
    pickled = self._ray.put(cloudpickle.dumps(function))
    return _Job(
      secrets.token_hex(8), [pickled], os.getcwd(), marks, environment
    )

  def _num_workers(self, left_out: Collection[str]) -> int:
    """Return the number of workers that fit on the nodes of the cluster."""
    needs = self._cluster.needs
    return sum(
      int(min(node['Resources'].get(x, 0) // n for x, n in needs.items()))
      for node in self._ray.nodes()
      if node['Alive'] and node['NodeID'] not in left_out
    )
