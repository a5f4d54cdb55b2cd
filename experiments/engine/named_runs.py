# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs that flags name: rows of a comparison, --row=NAME=RUN[,OPTION=VALUE...]."""

from collections.abc import Collection, Mapping, Sequence
import pathlib
from typing import Any

from absl import flags

from experiments.engine import configs
from retrieval import settings


def define_flag() -> None:
  """Define --row."""
  flags.DEFINE_multi_string('row', [], 'NAME=RUN[,OPTION=VALUE...].')


def parse(
  values: Sequence[str],
  options: Mapping[str, Any],
  no_folders: Collection[str] = (),
) -> dict[str, list[dict[str, Any]]]:
  """Return NAME -> the runs of that name, each as {'workdir': RUN, OPTION: value}.

  Args:
    options: annotation of each option, as of `settings`.
    no_folders: values of RUN that need not be folders.
  """
  rows: dict[str, list[dict[str, Any]]] = {}
  for value in values:
    name, _, rest = value.partition('=')
    workdir, *options_of_run = rest.split(',')
    run = {'workdir': workdir}
    for option, _, text in (x.partition('=') for x in options_of_run):
      if option in run or option not in options:
        name = ''
        break
      run[option] = configs.parse(text, options[option])
      settings.check_value(
        f'--row={value}: {option}', run[option], options[option]
      )
    if not name:
      raise ValueError(
        f'--row={value}: expected NAME=RUN, and after commas OPTION=VALUE, each '
        f'once, of {[*options]}.'
      )
    for folder in {workdir, run.get('data', '.')} - {*no_folders}:
      if not folder or not pathlib.Path(folder).is_dir():
        raise ValueError(f'--row={value}: {folder!r}: expected a folder.')
    rows.setdefault(name, []).append(run)
  return rows


def pairs(
  name: str, row: Sequence[Any], other_name: str, other: Sequence[Any]
) -> list[tuple[Any, Any]]:
  """Pair the seeds of two rows by number; a single seed pairs with each."""
  if len(row) != len(other) and 1 not in (len(row), len(other)):
    raise ValueError(
      f'Row {name} has {len(row)} runs and {other_name} {len(other)}: expected as '
      'many seeds of each, or one.'
    )
  number = max(len(row), len(other))
  one, two = (list(x) * (number if len(x) == 1 else 1) for x in (row, other))
  return list(zip(one, two, strict=True))


def mirrored(difference: dict[str, Any]) -> dict[str, Any]:
  """Return a difference with its signs turned: mean, low, high and `of_seeds`."""
  mean, low, high = (-difference[x] for x in ('mean', 'high', 'low'))
  of_seeds = [-x for x in difference['of_seeds']]
  return {'mean': mean, 'low': low, 'high': high, 'of_seeds': of_seeds}
