# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Build the index versions of a running training from its snapshots.

  python -m experiments.realm.refresh_worker --config=configs/<name>.py:async \
    --config.data_dir=DATA --workdir=DIR

is the worker of a training with --config.refresh.schedule=async and
--config.refresh.builder=external on another host that sees the workdir; with builder
'process' the training starts it. It ends with the training.

Both share the index folder alone: snapshots/<step>.safetensors are parameters to build
from, failures/<version>.txt says why a version could not be built, <step>-<hash>/ is a
version. Of several snapshots the newest is taken. After a kill building continues at
the first missing shard.
"""

from collections.abc import Callable
import multiprocessing
import os
import pathlib
import time
from typing import Any

from absl import logging
import jax
from jax.experimental import multihost_utils

from experiments.engine import failures, progress
from realm_jax.data import folder as realm_data
from realm_jax.trained import index_builder
from retrieval.index import index_versions, snapshots
from retrieval.store import checkpoints, children

_SNAPSHOTS = 'snapshots'
_POLL_SEC = 0.2  # between two looks for a snapshot


def build(builder: index_builder.Builder, step: int, params: Any) -> str:
  """Build a version in this thread, with a progress bar; return its name."""
  with progress.bar(f'index of step {step}', 'blocks') as update:
    return builder.build(step, params, update)


class Worker:
  """The trainer's side of a worker: snapshots out, versions and errors in."""

  def __init__(
    self,
    root: pathlib.Path,
    start: Callable[[], multiprocessing.Process] | None = None,
  ):
    """Store the folder of indices and the start of a child; None starts none."""
    self._root, self._start = root, start
    self._child: multiprocessing.Process | None = None
    self._errors: list[Exception] = []
    self._seen: set[str] = set()

  def start(self) -> None:
    """Start the child, unless it lives."""
    if self._start and self._child is None and jax.process_index() == 0:
      self._child = self._start()

  def offer(self, step: int, params: dict) -> None:
    """Write a snapshot; the worker takes the newest one when it is free."""
    if jax.process_index() == 0:
      try:
        write_snapshot(self._root, step, params)
      except OSError as error:
        self._errors.append(error)
    self.start()

  def errors(self) -> list[Exception]:
    """Return the errors since the last call: of snapshots, and of the worker."""
    errors, self._errors = self._errors, []
    said = index_builder.read_failures(self._root)
    errors += [ValueError(said[x]) for x in said if x not in self._seen]
    self._seen |= {*said}
    if self._child is not None and not self._child.is_alive():
      code = self._child.exitcode
      text = f'the builder died, exit code {code}; the next snapshot starts it'
      errors.append(ChildProcessError(text))
      self._child = None
    return errors

  def close(self) -> None:
    """End the child; its shards stay on disk."""
    if self._child is not None:
      self._child.terminate()
      self._child.join(10)


def write_snapshot(root: pathlib.Path, step: int, params: dict) -> None:
  """Write parameters for a builder; only the newest two snapshots stay."""
  folder = root / _SNAPSHOTS
  folder.mkdir(parents=True, exist_ok=True)
  snapshots.write(folder / f'{step:010d}.safetensors', params)
  for old in _snapshots(root)[:-2]:
    old.unlink(missing_ok=True)


def newest_snapshot(root: pathlib.Path) -> pathlib.Path | None:
  """Return the newest snapshot that the trainer wrote, named by its step."""
  return next(reversed(_snapshots(root)), None)


def _snapshots(root: pathlib.Path) -> list[pathlib.Path]:
  return sorted((root / _SNAPSHOTS).glob('[0-9]*.safetensors'))


def forget_later(
  folder: index_versions.VersionFolder, step: int, versions: bool
) -> None:
  """Delete snapshots, versions and failure files newer than `step`.

  Its snapshots would displace those of this run. Process 0 removes them; the
  others wait.

  Args:
    versions: whether index versions go, too. Those of a synchronous run are the
      ones that this run would build.
  """
  if jax.process_index() == 0:
    for file in _snapshots(folder.root):
      if int(file.stem) > step:
        file.unlink(missing_ok=True)
    if versions:
      folder.remove_later(step)
    index_builder.remove_failures(folder.root)
  wait_for_all('forget_later')


def wait_for_all(name: str) -> None:
  """Wait until all processes of a distributed run are here."""
  if jax.process_count() > 1:
    multihost_utils.sync_global_devices(name)


def _has_ended(config: Any, workdir: str) -> bool:
  """Whether the training has saved its last step."""
  try:
    return checkpoints.find(workdir).step >= config.num_steps
  except FileNotFoundError:  # not written yet, or being removed
    return False


def refresh_worker(config: Any, workdir: str) -> None:
  """Build a version of each newest snapshot until the training has ended."""
  data = realm_data.DataFolder.of(config, workdir)
  builder = index_builder.make_builder(config, data, workdir)
  root = builder.folder.root
  logging.info(
    'Following the snapshots of %s; indices go to %s.', workdir, root
  )
  done = None
  while True:
    ended = _has_ended(config, workdir)
    newest = newest_snapshot(root)
    if newest in (None, done):  # a run that was killed goes back
      if ended:
        return
      time.sleep(_POLL_SEC)
      continue
    step = int(newest.stem)
    try:
      name = build(builder, step, snapshots.read(newest))
    except FileNotFoundError as error:  # removed while it was read
      logging.info('Snapshot of step %d is gone (%s).', step, error)
      time.sleep(_POLL_SEC)
      continue
    except Exception as error:  # noqa: BLE001 - the next snapshot may do
      line = failures.line_of(error, workdir)
      if line is None:
        raise
      logging.warning('No index of step %d: %s', step, line)
    else:
      logging.info('Published index version %s.', name)
    done = newest


def start_child(config: Any, workdir: str) -> multiprocessing.Process:
  """Start a process that follows snapshot files on the last cores.

  The process ends with this one.
  """
  process = multiprocessing.get_context('spawn').Process(
    target=_child,
    args=(config, workdir),
    daemon=True,
  )
  process.start()
  return process


def _child(config: Any, workdir: str) -> None:
  children.exit_with_parent()
  logging.set_verbosity(logging.INFO)
  if hasattr(os, 'sched_setaffinity'):
    cores = sorted(os.sched_getaffinity(0))[-config.refresh.num_cores :]
    os.sched_setaffinity(0, cores)
  # Accelerators belong to the trainer.
  jax.config.update('jax_platforms', 'cpu')
  jax.config.update('jax_num_cpu_devices', 1)
  refresh_worker(config, workdir)


if __name__ == '__main__':
  from experiments.engine import command

  command.main('refresh_worker', writes='index')
