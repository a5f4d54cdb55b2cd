# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Results of runs: figures for the tables, and the scale of the runs."""

from collections.abc import Mapping, Sequence
import fnmatch
import math
import pathlib
from typing import Any

import jax
import ml_collections
import numpy as np

from experiments.tables import paper_table
from realm_jax.data import folder as realm_data
from retrieval.store import checkpoints, manifests
from retro_jax.data import folder as retro_data

Runs = Mapping[str, pathlib.Path]
# A number, or {mean, low, high} of a share.
Figure = float | Mapping[str, float]
_ROWS = ('rows', 'sets', 'zero_shot')  # names of the rows of a results file


def parse_runs(values: Sequence[str]) -> dict[str, pathlib.Path]:
  """Return the folder of each run by the run's name.

  Args:
    values: NAME=DIR, or DIR alone, whose last part is then the name.

  Raises:
    ValueError: if a folder does not exist, or a name is given twice.
  """
  runs = {}
  for value in values:
    name, separator, folder = value.partition('=')
    path = pathlib.Path(folder if separator else name)
    name = name if separator else path.resolve().name
    if not path.is_dir():
      raise ValueError(f'--run={value}: expected a folder, NAME=DIR or DIR.')
    if name in runs:
      raise ValueError(f'--run={value}: a run of that name was given before.')
    runs[name] = path
  return runs


def _read(path: pathlib.Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
  """Return the content of a results file and its rows; empty if it is missing.

  A curve gives one row for each point.

  Raises:
    ValueError: if the file is not a JSON object.
  """
  if not path.is_file():
    return {}, []
  content = manifests.read_object(path)
  rows = next((content[x] for x in _ROWS if x in content), [])
  points = [{**x, **point} for x in rows for point in x.get('points') or ({},)]
  return content, points


def _mode(row: Mapping[str, Any]) -> str:
  """Mode of a results row: on, off, shuffled, oracle, baseline or knn."""
  name = str(row.get('name', ''))
  if name in ('baseline', 'model alone'):  # alone: without the kNN-LM's store
    return 'baseline'
  if name.lower().startswith('knn'):
    return 'knn'
  return row.get('retrieval', 'off' if name.endswith(' off') else 'on')


def _fits(row: Mapping[str, Any], source: paper_table.Source) -> bool:
  if source.mode and _mode(row) != source.mode:
    return False
  for name, wanted in source.where.items():
    value = row.get(name)
    if value is None:
      return False
    if isinstance(wanted, str):
      fits = fnmatch.fnmatchcase(str(value), wanted)
    else:
      fits = math.isclose(value, wanted)
    if not fits:
      return False
  return True


def find(source: paper_table.Source, folder: pathlib.Path) -> Figure | None:
  """Return a figure of a run, or None."""
  for file in filter(None, (source.file, source.otherwise)):
    for row in _read(folder / file)[1]:
      if _fits(row, source):
        return row.get(source.field)
  return None


def find_all(
  source: paper_table.Source | None, runs: Runs
) -> list[tuple[str, Figure]]:
  """Return (name of run, figure) for each run that has a figure."""
  found = [
    (name, find(source, folder))
    for name, folder in runs.items()
    if source and source.run in ('', name)
  ]
  return [(name, value) for name, value in found if value is not None]


def describe(folder: pathlib.Path) -> str:
  """Describe the scale of a folder's results: model, training, datastore."""
  found = {}  # workdirs that the results name; by default the folder itself
  for path in sorted(folder.glob('*.json')):
    content, rows = _read(path)
    settings = content.get('settings', {}) if rows else {}
    for fields in (settings, settings.get('evaluate', {}), *rows[:1]):
      for key in ('workdir', 'model_workdir'):
        if key in fields:
          run = pathlib.Path(fields[key] or folder)
          found[run.resolve()] = run
  if [*found] in ([], [folder.resolve()]):
    return _scale(folder)
  return '; '.join(f'of {run}, {_scale(run)}' for run in found.values())


def _scale(run: pathlib.Path) -> str:
  """Parameters, steps, tokens and datastore, read from the run's checkpoint."""
  try:
    saved = checkpoints.find(str(run))
  except (FileNotFoundError, ValueError):
    return 'no checkpoint there, scale unknown'
  c = saved.config
  count = sum(math.prod(x.shape) for x in jax.tree.leaves(saved.params))
  parts = [f'{count / 1e6:,.1f} M parameters']
  if c.get('retrofit_from'):
    parts.append(f'RETROfit of {c.retrofit_from}')
  if 'blocks' in c or 'qa' in c:  # rows of questions have their own lengths
    parts.append(f'{saved.step:,} steps of {c.batch_size:,}')
  else:
    tokens = saved.step * c.batch_size * c.sequence_chunks
    tokens *= c.model.chunk_length
    parts += [f'{saved.step:,} steps', f'{tokens / 1e6:,.1f} M tokens']
  if 'qa' in c and c.retrieval and c.qa.passages:
    parts.append(f'{c.qa.num_passages} passages a question, from files')
  elif 'blocks' in c or (
    c.retrieval and c.get('qa', {}).get('reader') != 'closed_book'
  ):
    parts.append(_datastore(c, run))
  return ', '.join(parts)


def _datastore(config: ml_collections.ConfigDict, run: pathlib.Path) -> str:
  """Size of the datastore that a run retrieves from, if it still exists."""
  folder = realm_data if 'blocks' in config else retro_data
  data = folder.DataFolder.of(config, run)
  try:
    if folder is realm_data:
      count, length = data.blocks.num_blocks, config.blocks.max_length
      return f'{count:,} blocks of at most {length} wordpieces'
    chunks = data.chunks('train')
  except (FileNotFoundError, ValueError):
    return f'datastore unknown: none in {data.root}'
  tokens = int(chunks.lengths(np.arange(chunks.num_chunks)).sum())
  return f'datastore of {chunks.num_chunks:,} chunks, {tokens:,} tokens'
