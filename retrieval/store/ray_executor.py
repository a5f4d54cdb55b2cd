# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The executor of corpus jobs on a Ray cluster, whose nodes may come and go.

Each worker is an actor that sets the job up once and then runs one call after another.
All nodes need the files of the job, the working folder and the Python environment of
the driver under the same paths.
"""

import collections
from collections.abc import Iterator, Mapping, Sequence
import contextlib
import itertools
import os
import pathlib
import sys
import time
from typing import Any

from absl import logging
import cloudpickle

from retrieval.store import drafts, executors, ray_cluster

_POLL_SEC = 2.0
_PATIENCE_SEC = 30.0  # between two lines about a lack of workers
_OWN_VARIABLES = 'RETRIEVAL_'  # of the environment, which workers get


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
    self._worker = executors.Worker(pickled)

  def run(self, *arguments) -> Any:
    """Return the result of a call."""
    return self._worker(*arguments)


class RayExecutor(executors.Remote):
  """Runs calls on the workers of a Ray cluster."""

  def __init__(
    self,
    cluster: ray_cluster.Cluster,
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
    self._cluster, self._ray = cluster, ray_cluster.connect(cluster.address)
    self._folders = [pathlib.Path(x).absolute() for x in folders]
    self._closed = False

  def close(self) -> None:
    """See `executors.Remote`."""
    self._closed = True

  def run(self, name, set_up, calls) -> Iterator[Any]:
    """See `executors.Executor`; a call that raises OSError runs again, too."""
    ray, calls = self._ray, enumerate(calls)
    waiting: list[tuple[int, tuple]] = []  # at most one, and those lost
    deaths = collections.Counter()
    with contextlib.ExitStack() as stack:
      crew = _Crew(ray, self._cluster, name, set_up, self._mark(stack))
      stack.callback(crew.close)
      while True:
        if self._closed:
          raise executors.JobError(f'{name}: its workers were ended.')
        if not waiting:
          waiting += itertools.islice(calls, 1)
        if not waiting and not any(crew.calls.values()):
          return
        if waiting:
          crew.hire()
          if crew.idle:
            crew.give(waiting.pop(0))
            continue
        if not crew.calls:
          time.sleep(_POLL_SEC)
          continue
        done, _ = ray.wait([*crew.calls], num_returns=1, timeout=_POLL_SEC)
        for reference in done:
          call, actor = crew.calls.pop(reference), crew.actors.pop(reference)
          try:
            result = ray.get(reference)
          except ray.exceptions.RayError as error:
            cause = getattr(error, 'cause', None)
            if isinstance(cause, Exception) and not isinstance(cause, OSError):
              raise cause from None
            crew.dismiss(actor)
            lost = [call or (-1, ('start',))]
            waiting = [*filter(None, [call]), *waiting]
            deaths.update(number for number, _ in lost)
            logging.warning('%s: %s', name, ' '.join(str(error).split())[-300:])
            executors.count_death(name, deaths, lost)
          else:
            crew.idle.append(actor)
            if call:
              yield result

  def _mark(self, stack: contextlib.ExitStack) -> list[str]:
    """Return files in the folders of the job, which the stack removes."""
    marks = []
    for folder in self._folders:
      folder.mkdir(parents=True, exist_ok=True)
      mark = drafts.beside(folder / 'seen')  # a killed driver's is removed
      mark.touch()
      stack.callback(mark.unlink, missing_ok=True)
      marks.append(str(mark))
    return marks


class _Crew:
  """The workers of a job.

  Attributes:
    calls: reference -> the call that runs; None while a worker starts.
    actors: reference -> its worker.
    idle: workers without a call.
  """

  def __init__(
    self, ray, cluster: ray_cluster.Cluster, name, set_up, marks: list[str]
  ):
    self._ray, self._cluster, self._name = ray, cluster, name
    variables = os.environ.items()
    environment = {x: y for x, y in variables if x.startswith(_OWN_VARIABLES)}
    # XLA's threads; Ray sets those of OpenMP.
    environment['NPROC'] = str(max(1, int(cluster.cpus_per_worker)))
    pickled = ray.put(cloudpickle.dumps(set_up))
    self._start = pickled, os.getcwd(), marks, environment
    self.calls: dict[Any, tuple[int, tuple] | None] = {}
    self.actors: dict[Any, Any] = {}
    self.idle: list[Any] = []
    self._next_look, self._next_line = 0.0, time.monotonic() + _PATIENCE_SEC

  def give(self, call: tuple[int, tuple]) -> None:
    """Let an idle worker run a call."""
    actor = self.idle.pop()
    reference = actor.run.remote(*call[1])
    self.calls[reference], self.actors[reference] = call, actor

  def hire(self) -> None:
    """Start workers where the cluster has room, a while after the last look."""
    now, needs = time.monotonic(), self._cluster.needs
    if now < self._next_look:
      return
    self._next_look = now + _POLL_SEC
    room = sum(
      int(min(node['Resources'].get(x, 0) // n for x, n in needs.items()))
      for node in self._ray.nodes()
      if node['Alive']
    )
    wanted = min(room, self._cluster.workers or room)
    options = {
      'num_cpus': needs['CPU'],
      'num_gpus': needs.get('GPU', 0),
      'resources': {x: needs[x] for x in needs if x not in ('CPU', 'GPU')},
      'scheduling_strategy': 'SPREAD',
      'max_restarts': 0,
    }
    for _ in range(wanted - len(self.actors) - len(self.idle)):
      actor = self._ray.remote(_Actor).options(**options).remote()
      reference = actor.start.remote(*self._start)
      self.calls[reference], self.actors[reference] = None, actor
    has_workers = self.idle or any(self.calls.values())
    if not has_workers and now > self._next_line:
      self._next_line = now + _PATIENCE_SEC
      logging.warning(
        '%s: no worker of %s yet; the cluster has %s.',
        self._name,
        needs,
        self._ray.cluster_resources(),
      )

  def dismiss(self, actor) -> None:
    """End a worker; another takes its place."""
    self._ray.kill(actor)
    self._next_look = 0.0

  def close(self) -> None:
    """End all workers."""
    for actor in (*self.idle, *self.actors.values()):
      self._ray.kill(actor)
