# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Ray's executor: its settings, and workers that die, on clusters of this machine."""

import contextlib
import functools
import importlib.util
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types

import cloudpickle
import numpy as np
import pytest

from retrieval import settings
from retrieval.store import cluster_settings, executors, ray_cluster
from tests import free_port
from tests.retrieval.store import executors_test, loopback

with_ray = pytest.mark.skipif(
  importlib.util.find_spec('ray') is None, reason='needs the extra [cluster]'
)


def test_needs_of_a_worker():
  cluster = cluster_settings.Cluster(cpus_per_worker=2.0, tpus_per_worker=4.0)
  assert cluster.needs == {'CPU': 2.0, 'TPU': 4.0}
  with pytest.raises(settings.SettingsError, match='cpus_per_worker=0'):
    cluster_settings.Cluster(cpus_per_worker=0.0)
  with pytest.raises(settings.SettingsError, match="address='': expected that"):
    cluster_settings.Cluster(hold_shards=True)


def test_the_extra_is_named_where_ray_is_missing(monkeypatch):
  monkeypatch.setitem(sys.modules, 'ray', None)
  with pytest.raises(ImportError, match=r'realm-retro-jax\[cluster\]'):
    ray_cluster.connect('auto')


@pytest.mark.parametrize('scheme', ['', 'ray://'])
def test_an_address_without_a_cluster_ends_in_one_line(monkeypatch, scheme):
  started = []
  ray = types.SimpleNamespace(
    is_initialized=lambda: False, init=lambda *a, **k: started.append(a)
  )
  monkeypatch.setitem(sys.modules, 'ray', ray)
  monkeypatch.setenv('RAY_AUTH_TOKEN', 'x')
  monkeypatch.setenv('RAY_AUTH_MODE', '')  # restored at the end
  monkeypatch.delenv('RAY_AUTH_MODE')
  with socket.create_server(('127.0.0.1', 0)) as server:
    address = f'{scheme}127.0.0.1:{server.getsockname()[1]}'
    assert ray_cluster.connect(address) is ray
    assert os.environ.get('RAY_AUTH_MODE') == ('token' if scheme else None)
  with pytest.raises(ValueError, match='no Ray cluster there .*refused'):
    ray_cluster.connect(address)
  assert started == [(address,)]


class RayError(Exception):
  """As Ray raises it around an error of a task."""

  @property
  def cause(self):
    return self.args[0]


class FakeRay:
  """A cluster in this process; nodes of one core, some of which see no folder."""

  def __init__(self, *names, blind=()):
    self._names, self._blind = names, blind
    self.exceptions = types.SimpleNamespace(RayError=RayError)

  def nodes(self):
    cpu = {'CPU': 1}
    return [{'Alive': True, 'Resources': cpu, 'NodeID': x} for x in self._names]

  def remote(self, function):
    del function
    return self

  def options(self, label_selector, **unused):
    excluded = label_selector.get('ray.io/node-id', '!in()')[4:-1].split(',')
    node = next(x for x in self._names if x not in excluded)

    def run(job, arguments):
      try:
        if node in self._blind:
          raise ray_cluster._RefusalError(node, f'/data: node {node}')
        return cloudpickle.loads(job.function[0])(*arguments), None
      except Exception as error:  # noqa: BLE001
        return None, error

    return types.SimpleNamespace(remote=run)

  def put(self, value):
    return value

  def wait(self, references, num_returns, timeout):
    return references[:num_returns], references[num_returns:]

  def get(self, reference):
    result, error = reference
    if error:
      raise RayError(error)
    return result

  def cancel(self, reference, force):
    pass


def _run_on(monkeypatch, ray, function, calls):
  monkeypatch.setattr(ray_cluster, 'connect', lambda address: ray)
  cluster = cluster_settings.Cluster(address='x')
  return ray_cluster.RayExecutor(cluster).run('job', function, calls)


def test_a_node_that_cannot_start_workers_is_left_out(monkeypatch):
  lines = []
  monkeypatch.setattr(
    ray_cluster.logging, 'warning', lambda *line: lines.append(line)
  )
  calls = executors_test.Calls(range(5))
  ray = FakeRay('a', 'b', blind='a')
  results = _run_on(monkeypatch, ray, executors_test.fails_at_three, calls)
  with pytest.raises(ValueError, match='Task 3 of'):
    list(results)
  assert {line[:2] for line in lines} == {('Node %s is left out: %s', 'a')}
  results = _run_on(monkeypatch, FakeRay('a', 'b', blind='ab'), abs, [(1,)])
  with pytest.raises(ValueError, match='/data: node b'):
    list(results)


def slow(folder, i):
  """A task that takes a while, and leaves a mark."""
  time.sleep(0.3)
  (pathlib.Path(folder) / f'{i}').touch()
  return i


@pytest.fixture(scope='module')
def nodes():
  """A cluster of three nodes on the loopback device; the first runs no tasks."""
  with loopback.cluster(num_workers=2) as nodes:
    yield nodes


@with_ray
@pytest.mark.slow
def test_a_cluster_of_three_nodes(nodes, tmp_path):
  cluster = cluster_settings.Cluster(address=nodes.address)
  executor = ray_cluster.RayExecutor(cluster, [tmp_path])
  made = executors_test.build(tmp_path / 'ray', executor)
  expected = executors_test.build(tmp_path / 'alone', None)
  np.testing.assert_array_equal(made.array('x')[:], expected.array('x')[:])
  assert os.getpid() not in made.array('pid')[:]
  assert not [*tmp_path.glob('.seen*')]
  # A node that is killed loses no task.
  (tmp_path / 'marks').mkdir()
  killed = threading.Timer(3.0, nodes.kill, args=(-1,))
  killed.start()
  calls = executors_test.Calls(range(40))
  found = ray_cluster.RayExecutor(cluster).run(
    'job', functools.partial(slow, str(tmp_path / 'marks')), calls
  )
  assert sorted(found) == [*range(40)]
  assert len([*(tmp_path / 'marks').iterdir()]) == 40
  nodes.add()  # and a new one may come


_FROM_OUTSIDE = """
import os, sys
from retrieval.store import cluster_settings, ray_cluster
from tests.retrieval.store import executors_test
os.chdir(sys.argv[1])
cluster = cluster_settings.Cluster(address=sys.argv[2])
executors_test.build(sys.argv[3], ray_cluster.RayExecutor(cluster))
"""


@with_ray
@pytest.mark.slow
@pytest.mark.skipif(
  importlib.util.find_spec('grpc') is None, reason='needs the extra [cluster]'
)
def test_a_driver_outside_the_cluster(tmp_path):
  """A client of a head that has no part of the project in its path."""
  ports = [free_port.address().rpartition(':')[2] for _ in range(2)]
  port, root = int(ports[0]), pathlib.Path(__file__).parents[3]
  short = tempfile.mkdtemp(prefix='ray-')  # names of sockets are short
  env = os.environ | {
    'RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER': '0',
    'RAY_USAGE_STATS_ENABLED': '0',
    'PYTHONPATH': '',
  }
  head = [sys.executable, '-m', 'ray.scripts.scripts', 'start', '--head']
  head += ['--block', '--node-ip-address=127.0.0.1', f'--port={ports[1]}']
  head += [f'--ray-client-server-port={port}', '--num-cpus=1']
  head += ['--include-dashboard=false', f'--temp-dir={short}']
  started = subprocess.Popen(head, cwd=tmp_path, env=env)
  try:
    address, deadline = f'ray://127.0.0.1:{port}', time.monotonic() + 60
    while time.monotonic() < deadline:
      with contextlib.suppress(OSError):
        socket.create_connection(('127.0.0.1', port), 1).close()
        break
      time.sleep(0.5)
    command = [sys.executable, '-c', _FROM_OUTSIDE, str(root), address]
    command.append(str(tmp_path / 'made'))
    subprocess.run(
      command, cwd=root, env=env | {'PYTHONPATH': str(root)}, check=True
    )
  finally:
    started.terminate()
    started.wait(60)
    shutil.rmtree(short, ignore_errors=True)
  expected = executors_test.build(tmp_path / 'alone', None)
  found = executors_test.build(tmp_path / 'made', None)
  np.testing.assert_array_equal(found.array('x')[:], expected.array('x')[:])
  assert os.getpid() not in found.array('pid')[:]


@with_ray
@pytest.mark.slow
@pytest.mark.parametrize(
  'how', [executors_test.kill_itself, executors_test.fail]
)
def test_tasks_run_again_twice_and_no_more(nodes, tmp_path, how):
  executor = ray_cluster.RayExecutor(
    cluster_settings.Cluster(address=nodes.address, workers=2)
  )
  for times in (2, 3):
    folder = tmp_path / str(times)
    folder.mkdir()
    task = functools.partial(
      executors_test.goes_wrong, how, str(folder), 4, times
    )
    found = executor.run('job', task, executors_test.Calls(range(9)))
    if times == 2:
      assert sorted(found) == [*range(9)]
    else:
      with pytest.raises(executors.JobError, match='shard 4 failed 3'):
        list(found)
    assert len([*folder.iterdir()]) == times
