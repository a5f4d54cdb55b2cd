# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Index versions of a running training, built from its snapshots by another process.

If snapshots appear faster than versions are built, the newest one is taken. After a
kill building continues at the first missing shard.
"""

from collections.abc import Callable
import functools
import multiprocessing
import os
import pathlib
import time
from typing import Any

from absl import logging
import jax

from experiments.engine import failures
from experiments.realm import background_builders
from realm_jax.data import folder as realm_data
from realm_jax.serving import index_builder, index_folders
from retrieval.store import checkpoints, children

# () -> (step, loader of the embedder) of the newest snapshot, or None.
Source = Callable[[], tuple[int, Callable[[], Any]] | None]


def newest_checkpoint(
  workdir: str,
) -> tuple[int, Callable[[], Any]] | None:
  """Return step and loader of the trainer's newest checkpoint."""
  try:
    saved = checkpoints.find(workdir)
  except FileNotFoundError:  # not written yet, or being removed
    return None

  def load():
    params, _ = checkpoints.load_params(workdir, step=saved.step)
    return index_builder.snapshot(params)

  return saved.step, load


def follow(
  config: Any,
  data: realm_data.DataFolder,
  workdir: str,
  newest: Source,
) -> None:
  """Build a version of each newest snapshot, up to the one of the last step."""
  builder = index_builder.make_builder(config, data, workdir)
  logging.info(
    'Following the snapshots of %s; indices go to %s.',
    workdir,
    builder.folder.root,
  )
  poll_sec, done = config.refresh.poll_sec, -1
  while done < config.num_steps:
    found = newest()
    if found is None or found[0] == done:  # a run that was killed goes back
      time.sleep(poll_sec)
      continue
    step, load = found
    try:
      name = background_builders.build(builder, step, load())
    except FileNotFoundError as error:  # removed while it was read
      logging.info('Snapshot of step %d is gone (%s).', step, error)
      time.sleep(poll_sec)
      continue
    except Exception as error:  # noqa: BLE001 - the next snapshot may do
      line = failures.line_of(error, workdir)
      if line is None:
        raise
      logging.warning('No index of step %d: %s', step, line)
    else:
      logging.info('Published index version %s.', name)
    done = step


def refresh_worker(config: Any, workdir: str) -> None:
  """Build versions of the checkpoints in `workdir`."""
  data = realm_data.DataFolder.of(config, workdir)
  follow(config, data, workdir, lambda: newest_checkpoint(workdir))


def start_child(
  config: Any, data_root: str, workdir: str
) -> multiprocessing.Process:
  """Start a process that follows snapshot files on its own cores.

  The process ends with this one.
  """
  process = multiprocessing.get_context('spawn').Process(
    target=_child,
    args=(config, data_root, workdir),
    daemon=True,
  )
  process.start()
  return process


def _child(config: Any, data_root: str, workdir: str) -> None:
  children.exit_with_parent()
  logging.set_verbosity(logging.INFO)
  if hasattr(os, 'sched_setaffinity'):
    cores = sorted(os.sched_getaffinity(0))[-config.refresh.num_cores :]
    os.sched_setaffinity(0, cores)
  # Accelerators belong to the trainer.
  jax.config.update('jax_platforms', 'cpu')
  jax.config.update('jax_num_cpu_devices', 1)
  data = realm_data.DataFolder(pathlib.Path(data_root))
  root = index_folders.index_folder(workdir)
  newest = functools.partial(background_builders.newest_snapshot, root)
  follow(config, data, workdir, newest)
