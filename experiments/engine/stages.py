# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Preparing data stage by stage, here or on a Ray cluster."""

from collections.abc import Callable, Collection, Sequence
import dataclasses
import os
import pathlib
import time
from typing import Any

from absl import logging
import jax

from experiments.engine import reports
from retrieval.index import published_index as index_lib
from retrieval.store import (
  array_store,
  checksums,
  cluster_settings,
  executors,
  locks,
  manifests,
)

Rows = list[tuple[str, str]]  # (quantity, value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepare:
  """Preparation of data."""

  stages: str = 'all'  # or names joined by commas, in the order of `STAGES`


def choose(names: str, known: Collection[str]) -> list[str]:
  """Return the stages that `names` lists with commas, or all for 'all'.

  Raises:
    ValueError: for an unknown stage.
  """
  if names == 'all':
    return list(known)
  chosen = names.split(',')
  unknown = [stage for stage in chosen if stage not in known]
  if unknown:
    raise ValueError(
      f'prepare.stages names {unknown}; expected some of {list(known)}.'
    )
  return chosen


def executor(
  config: Any, root: str | os.PathLike, num_processes: int = 1
) -> executors.Executor:
  """Return the executor that makes shards, by `config.cluster` if there is one.

  Args:
    root: folder of the shards, which all nodes of a cluster must see.
    num_processes: of this machine, where the config names no more.
  """
  cluster = getattr(config, 'cluster', cluster_settings.Cluster())
  if cluster.address:
    from retrieval.store import ray_cluster

    return ray_cluster.RayExecutor(cluster, [root])
  return executors.local(max(cluster.workers, num_processes))


def check_alone() -> None:
  """Raise ValueError in one of several processes of `config.distributed`."""
  if jax.distributed.is_initialized() and jax.process_count() > 1:
    raise ValueError(
      'config.distributed=True: this command runs in one process; '
      'config.cluster.address lets the hosts of a Ray cluster help it.'
    )


def run(
  work: Sequence[tuple[str, Callable[[], Rows]]],
  root: pathlib.Path,
  verify: Callable[[], Rows] | None = None,
  shown: bool = True,
) -> None:
  """Run stages on a data folder and print their results.

  Args:
    work: (name, function without arguments that returns rows of results).
    verify: compares what is published, first; None for no such stage.
    shown: whether to print the results.

  Raises:
    locks.WriterError: if another process prepares the folder.
  """
  check_alone()
  heads, table = ('stage', 'quantity', 'value', 'seconds'), []
  if verify and checksums.mode() != 'off':
    work = [('verify', verify), *work]
  with locks.writer(root, locks.DATA):
    for stage, do in work:
      logging.info('Stage %s, in %s.', stage, root)
      start = time.monotonic()
      rows = do()
      sec = f'{time.monotonic() - start:.1f}'
      for i, (name, value) in enumerate(rows):
        table.append(('' if i else stage, name, value, '' if i else sec))
  if shown:
    reports.print_table(heads, table, wrap=True)
  logging.info('The data are in %s.', root)


def verify_stores(root: pathlib.Path) -> Rows:
  """Compare the checksums of the stores in a folder and in its folders.

  Raises:
    ValueError: naming the first file that is missing or damaged.
  """
  known = array_store.MANIFEST, index_lib.MANIFEST
  # An index of ScaNN has arrays, too.
  for folder in sorted({file.parent for file in root.glob('*/*.npy')}):
    whole = any((folder / name).exists() for name in known)
    if '.' not in folder.name and not whole:
      raise ValueError(
        f'{folder}: {array_store.MANIFEST} is missing; remove the folder and prepare it '
        'again.'
      )
  rows = []
  files = [*root.glob('*/manifest.json'), *root.glob('*/*/manifest.json')]
  for path in sorted(file.parent for file in files):
    name = path.relative_to(root).as_posix()
    manifest = manifests.read_json(path / array_store.MANIFEST)
    if 'shards' in manifest and '.' not in name:  # a dot marks a draft
      array_store.Store.open(path, manifest.get('kind')).verify()
      rows.append((f'checksums, {name}', 'right'))
  return rows
