# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The executor of corpus jobs on a Ray cluster, whose nodes may come and go.

Each worker is an actor that sets the job up once and then runs one task after another.
A worker has at most one task waiting behind the one that it runs, so that memory holds
few tasks. All nodes need the files of the job, the working folder and the Python
environment of the driver under the same paths; `ray_cluster.check_paths` looks for
folders.
"""

from collections.abc import Iterator, Sequence
import contextlib
import dataclasses
import errno
import os
import socket
import sys
import time
from typing import Any

from absl import logging
import cloudpickle

from retrieval.store import (
  executors,
  ray_cluster,
  serving,
  tasks as tasks_lib,
)

_POLL_SEC = 2.0
_PATIENCE_SEC = 30.0  # between two lines about a lack of workers
_DEATH_SEC = 30.0  # in which the cluster notices the death of a node
_CORE = '\0realm-retro-jax core {}'  # a name without a file
_WAITING = 2  # tasks of a worker: one that runs, one that follows


class _Actor:
  """A worker on some node, in the driver's working folder."""

  def place(self) -> tuple[str, str]:
    """Return the worker's node and host."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    return node, ray.util.get_node_ip_address()

  def start(
    self, pickled: bytes, folders: Sequence[str], num_cpus: float
  ) -> None:
    """Check that the folders are here, enter the first, and set the job up."""
    for folder in folders:
      if not os.path.isdir(folder):
        raise ValueError(ray_cluster.not_seen(folder, self.place()[1]))
    os.chdir(folders[0])
    # A driver outside of the cluster does not send its sys.path.
    if folders[0] not in sys.path:
      sys.path.insert(0, folders[0])
    with contextlib.suppress(OSError):  # a system that allows no such sockets
      self._claims = _take_cores(num_cpus)
    self._worker = executors.Worker(pickled)
    if self._worker.error is not None:
      raise self._worker.error

  def run(self, *arguments) -> tuple[Any, float]:
    """Return the result of a task and its seconds."""
    return self._worker(*arguments)


def _take_cores(num_cpus: float) -> list[socket.socket]:
  """Bind this process to cores that no other worker has, as many as Ray counts.

  Returns:
    A socket for each core, whose name marks the core as taken until the process
    ends; none where too few are free, and then the process uses all cores.
  """
  count = int(num_cpus)
  if not count or not hasattr(os, 'sched_setaffinity'):
    return []
  while (turn := _bound(_CORE.format('turn'))) is None:
    time.sleep(0.01)  # another worker takes its cores
  claims: dict[int, socket.socket] = {}
  with turn:
    for core in sorted(os.sched_getaffinity(0)):
      if claim := _bound(_CORE.format(core)):
        claims[core] = claim
      if len(claims) == count:
        os.sched_setaffinity(0, claims)
        return [*claims.values()]
    for claim in claims.values():
      claim.close()
  return []


def _bound(name: str) -> socket.socket | None:
  """Return a socket of a name, or None where another process has it."""
  found = socket.socket(socket.AF_UNIX)
  try:
    found.bind(name)
  except OSError as error:
    found.close()
    if error.errno != errno.EADDRINUSE:
      raise
    return None
  return found


@dataclasses.dataclass
class _Live:
  """A worker as the driver knows it."""

  actor: Any
  node: str = ''
  host: str = ''
  tasks: dict[Any, tasks_lib.Task] = dataclasses.field(default_factory=dict)


class RayExecutor(executors.Remote):
  """Runs tasks on the workers of a Ray cluster."""

  def __init__(
    self,
    cluster: ray_cluster.Cluster,
    stage: serving.Stage | None = None,
    folders: Sequence[str | os.PathLike] = (),
  ):
    """Join the cluster.

    Args:
      folders: what a node must see to work, beside the working folder.

    Raises:
      ImportError: when Ray is not installed.
      ValueError: when there is no such cluster.
    """
    super().__init__(stage)
    self._cluster, self._ray = cluster, ray_cluster.connect(cluster.address)
    self._folders = [os.getcwd(), *(os.path.abspath(x) for x in folders)]
    self._crew: _Crew | None = None
    self._set_up: executors.SetUp | None = None

  def run(self, name, set_up, calls) -> Iterator[Any]:
    """See `executors.Executor`."""
    tasks = tasks_lib.Tasks(name, iter(calls))
    if self._crew is None or set_up is not self._set_up:
      self.close()
      self._set_up = set_up
      pickled = cloudpickle.dumps(set_up)
      self._crew = _Crew(self._ray, self._cluster, pickled, self._folders)
    crew = self._crew
    try:
      yield from crew.results(tasks)
    finally:
      if self.stage is None or not tasks.ended:
        self.close()
    tasks.summary(crew.most_workers)

  def close(self) -> None:
    """End the workers."""
    if self._crew is not None:
      self._crew.close()
      self._crew = None


class _Crew:
  """Workers that have set the same job up, and the tasks that they run."""

  def __init__(
    self, ray, cluster: ray_cluster.Cluster, pickled: bytes, folders
  ):
    self._ray, self._cluster, self._folders = ray, cluster, folders
    self._pickled = ray.put(pickled)
    self.most_workers = 0
    self._tasks: tasks_lib.Tasks
    self._starting: dict[Any, _Live] = {}  # by the reference of `start`
    self._live: list[_Live] = []
    self._spare: tasks_lib.Task | None = None  # taken, but given to no worker
    self._set_up_task = tasks_lib.Task(('set-up',))
    self.closed = False
    self._next_look = self._next_line = 0.0

  def results(self, tasks: tasks_lib.Tasks) -> Iterator[Any]:
    """Yield the results of all tasks as they finish."""
    self._tasks = tasks
    self._next_line = time.monotonic() + _PATIENCE_SEC
    while True:
      if self.closed:
        raise tasks_lib.JobError(f'{tasks.job}: its workers were ended.')
      self._spare = self._spare or tasks.next()
      running = {r: w for w in self._live for r in w.tasks}
      if self._spare is None and not running:
        tasks.ended = True
        return
      self._hire()
      if self._spare is not None and self._give():
        continue
      waited = [*running, *self._starting]
      if not waited:
        time.sleep(_POLL_SEC)
        continue
      done, _ = self._ray.wait(waited, num_returns=1, timeout=_POLL_SEC)
      for reference in done:
        if reference in self._starting:
          self._started(reference)
        elif reference in running:
          yield from self._finished(reference, running[reference])

  def close(self) -> None:
    """End all workers, and the job that waits for them."""
    self.closed = True
    for worker in (*self._live, *self._starting.values()):
      self._ray.kill(worker.actor)

  def _hire(self) -> None:
    """Start workers where the cluster has room, a while after the last look."""
    now = time.monotonic()
    if now < self._next_look or self._spare is None:
      return
    self._next_look = now + _POLL_SEC
    room = self._room()
    wanted = min(room, self._cluster.workers or room)
    for _ in range(wanted - len(self._live) - len(self._starting)):
      actor = self._ray.remote(_Actor).options(**self._options()).remote()
      self._starting[actor.place.remote()] = _Live(actor)
    if not self._live and now > self._next_line:
      self._next_line = now + _PATIENCE_SEC
      found = self._ray.cluster_resources()
      logging.warning(
        '%s: no worker of %s yet; the cluster has %s.',
        self._tasks.job,
        self._cluster.needs,
        {name: found.get(name, 0) for name in self._cluster.needs},
      )

  def _room(self) -> int:
    """Return the number of workers that the nodes have room for."""
    needs = self._cluster.needs
    return sum(
      int(min(node['Resources'].get(x, 0) // n for x, n in needs.items()))
      for node in self._ray.nodes()
      if node['Alive']
    )

  def _options(self) -> dict[str, Any]:
    needs = self._cluster.needs
    return {
      'num_cpus': needs['CPU'],
      'num_gpus': needs.get('GPU', 0),
      'resources': {x: n for x, n in needs.items() if x not in ('CPU', 'GPU')},
      'scheduling_strategy': 'SPREAD',
      'max_restarts': 0,
    }

  def _started(self, reference) -> None:
    """Go on with a worker that has a place, or that is set up."""
    worker, errors = self._starting.pop(reference), self._ray.exceptions
    try:
      place = self._ray.get(reference)
    except errors.RayError as error:
      self._ray.kill(worker.actor)
      self._not_set_up(worker, error)
    else:
      if place is None:
        self._set_up_task.failures = 0
        self._live.append(worker)
        self.most_workers = max(self.most_workers, len(self._live))
      else:
        worker.node, worker.host = place
        self._begin(worker)

  def _begin(self, worker: _Live) -> None:
    """Let a worker that has a place set the job up."""
    reference = worker.actor.start.remote(
      self._pickled, self._folders, self._cluster.cpus_per_worker
    )
    self._starting[reference] = worker

  def _not_set_up(self, worker: _Live, error: Exception) -> None:
    """Go on with the other workers; without any, end after the third failure."""
    if self._live:
      self._next_look = time.monotonic() + _PATIENCE_SEC
      logging.warning(
        '%s: no worker on %s: %s',
        self._tasks.job,
        worker.host or 'a node',
        _cause(error),
      )
    elif isinstance(error, self._ray.exceptions.RayTaskError) or self._is_alive(
      worker.node
    ):
      self._tasks.failed(self._set_up_task, _cause(error))
      self._tasks.again.remove(self._set_up_task)  # no task of a worker

  def _give(self) -> bool:
    """Give the spare task to the worker with the fewest."""
    free = [x for x in self._live if len(x.tasks) < _WAITING]
    if not free:
      return False
    worker = min(free, key=lambda x: len(x.tasks))
    reference = worker.actor.run.remote(*self._spare.arguments)
    worker.tasks[reference], self._spare = self._spare, None
    return True

  def _finished(self, reference, worker: _Live) -> Iterator[Any]:
    if worker not in self._live:
      return  # its tasks run again
    try:
      result, sec = self._ray.get(reference)
    except self._ray.exceptions.RayTaskError as error:
      task = worker.tasks.pop(reference)
      if task.failures:  # what is wrong may be the worker
        yield from self._lost(worker)
      self._tasks.failed(task, _cause(error))
    except self._ray.exceptions.RayError:
      yield from self._lost(worker, is_dead=True)
    else:
      task = worker.tasks.pop(reference)
      self._tasks.done(task, sec, worker.host, len(self._live))
      yield result

  def _lost(self, worker: _Live, is_dead: bool = False) -> Iterator[Any]:
    """Let others do the tasks of a worker that goes; yield what it has done."""
    self._live.remove(worker)
    self._next_look = 0.0
    undone = []
    for reference, task in worker.tasks.items():
      try:
        result, sec = self._ray.get(reference, timeout=1)
      except (self._ray.exceptions.RayError, TimeoutError):
        undone.append(task)
      else:
        self._tasks.done(task, sec, worker.host, len(self._live))
        yield result
    self._ray.kill(worker.actor)
    if undone and is_dead:
      first = undone.pop(0)
      first.lost_on.append(worker.node)
      if first.failures + 1 >= tasks_lib.MOST_FAILURES:
        self._forgive(first)
      self._tasks.failed(first, tasks_lib.KILLED)
    for task in undone:
      self._tasks.interrupted(task)

  def _forgive(self, task: tasks_lib.Task) -> None:
    """Forget the failures of a task whose nodes have left the cluster."""
    deadline = time.monotonic() + _DEATH_SEC
    while any(map(self._is_alive, task.lost_on)) and (
      time.monotonic() < deadline
    ):
      time.sleep(0.5)
    left = [x for x in task.lost_on if not self._is_alive(x)]
    task.failures -= len(left)
    task.lost_on = [x for x in task.lost_on if x not in left]

  def _is_alive(self, node: str) -> bool:
    return any(x['NodeID'] == node and x['Alive'] for x in self._ray.nodes())


def _cause(error: Exception) -> Exception:
  """Return the error that a worker met, not Ray's around it."""
  cause = getattr(error, 'cause', None)
  return cause if isinstance(cause, Exception) else error
