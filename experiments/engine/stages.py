# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Preparing data stage by stage, alone or together with other processes."""

from collections.abc import Callable, Collection, Sequence
import pathlib
import time

from absl import logging
import ml_collections

from experiments.engine import reports
from retrieval.store import locks

_POLL_SEC = 5.0

Config = ml_collections.ConfigDict
Rows = list[tuple[str, str]]  # (quantity, value)


def choose(wanted: str, known: Collection[str]) -> list[str]:
  """Return the stages in `wanted`: 'all', or names joined by commas.

  Raises:
    ValueError: for an unknown stage.
  """
  if wanted == 'all':
    return list(known)
  chosen = wanted.split(',')
  unknown = [stage for stage in chosen if stage not in known]
  if unknown:
    raise ValueError(
      f'prepare.stages names {unknown}; expected some of {list(known)}.'
    )
  return chosen


def check_share(config: Config) -> None:
  """Raise ValueError unless 0 <= process_index < process_count."""
  index, count = config.prepare.process_index, config.prepare.process_count
  if not 0 <= index < count:
    raise ValueError(
      f'prepare.process_index={index}: expected 0 to process_count - 1 = '
      f'{count - 1}.'
    )


def run(
  config: Config,
  work: Sequence[tuple[str, Callable[[], Rows]]],
  root: pathlib.Path,
) -> None:
  """Run stages (name, function) on a data folder and print their results.

  Raises:
    locks.WriterError: if another process prepares this share of the folder.
  """
  with locks.writer(root, locks.DATA, config.prepare.process_index):
    _run(work, root)


def _run(
  work: Sequence[tuple[str, Callable[[], Rows]]], root: pathlib.Path
) -> None:
  heads, table = ('stage', 'quantity', 'value', 'seconds'), []
  for stage, do in work:
    logging.info('Stage %s, in %s.', stage, root)
    start = time.monotonic()
    rows = do()
    sec = f'{time.monotonic() - start:.1f}'
    for i, (name, value) in enumerate(rows):
      table.append(('' if i else stage, name, value, '' if i else sec))
  reports.print_table(heads, table, wrap=True)
  logging.info('The data are in %s.', root)


def share(config: Config) -> dict[str, int]:
  """This process's number and the number of processes, as keyword arguments."""
  names = ('process_index', 'process_count')
  return {name: config.prepare[name] for name in names}


def until_whole(config: Config, what: str, build: Callable):
  """Repeat `build` until no other process has work left on `what`.

  Args:
    build: returns None while other processes still work.

  Raises:
    ValueError: after `prepare.wait_hours`.
  """
  deadline = time.monotonic() + 3600 * config.prepare.wait_hours
  while (built := build()) is None:
    if time.monotonic() > deadline:
      raise ValueError(
        f'{what}: not made by the other processes within '
        f'config.prepare.wait_hours={config.prepare.wait_hours}; check '
        'those processes, and run all of them again to continue.'
      )
    logging.info('Waiting for the other processes to make %s.', what)
    time.sleep(_POLL_SEC)
  return built


def wait_for_first(config: Config, *paths: pathlib.Path) -> None:
  """Let the other processes wait until one of `paths`, made by process 0, exists."""
  if config.prepare.process_index:
    until_whole(
      config,
      str(paths[0]),
      lambda: any(path.exists() for path in paths) or None,
    )
