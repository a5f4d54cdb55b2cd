# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Results of RETRO's runs: figures for the tables, and their scale."""

from collections.abc import Mapping, Sequence
import json
import math
import pathlib
from typing import Any

import jax
import ml_collections
import numpy as np

from experiments.tables import paper_table
from retrieval.store import checkpoints
from retro_jax.data import folder as retro_data

# Results files whose settings name the evaluated run.
_FILES = (
  'evaluation.json',
  'leakage.json',
  'lambada.json',
  'summary.json',
  'retro_qa.json',
  'fid_qa.json',
  'knn_lm.json',
  'sweep_datastore.json',
  'sweep_neighbors.json',
  'sweep_parts.json',
)
Runs = Mapping[str, pathlib.Path]


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


def read_rows(path: pathlib.Path) -> list[dict[str, Any]]:
  """Read the rows of a results file; a curve gives one row for each point.

  Returns:
    The rows; [] if the file does not exist.

  Raises:
    ValueError: if the file is not a results file.
  """
  if not path.is_file():
    return []
  try:
    rows = json.loads(path.read_text())['rows']
  except (json.JSONDecodeError, KeyError, TypeError):
    raise ValueError(f'{path}: expected a JSON object with "rows".') from None
  return [
    {**row, **point} for row in rows for point in row.get('points') or ({},)
  ]


def _mode(row: Mapping[str, Any]) -> str:
  """Mode of a results row: on, off, shuffled, oracle, baseline or knn."""
  name = str(row.get('name', ''))
  if name in ('baseline', 'model alone'):  # alone: without the kNN-LM's store
    return 'baseline'
  if name.lower().startswith('knn'):
    return 'knn'
  if 'retrieval' in row:
    return row['retrieval']
  return 'off' if name.endswith(' off') else 'on'


def _fits(row: Mapping[str, Any], source: paper_table.Source) -> bool:
  if source.mode and _mode(row) != source.mode:
    return False
  if source.where is None:
    return True
  name, value = source.where
  if isinstance(value, str):
    return row.get(name) == value
  return row.get(name) is not None and math.isclose(row[name], value)


def find(source: paper_table.Source, folder: pathlib.Path) -> float | None:
  """Return a figure of a run, or None."""
  for file in filter(None, (source.file, source.otherwise)):
    for row in read_rows(folder / file):
      if _fits(row, source):
        value = row.get(source.field)
        return None if value is None or math.isnan(value) else float(value)
  return None


def find_all(
  source: paper_table.Source | None, runs: Runs
) -> list[tuple[str, float]]:
  """Return (name of run, figure) for each run that has a figure."""
  found = [
    (name, find(source, folder))
    for name, folder in runs.items()
    if source and source.run in ('', name)
  ]
  return [(name, value) for name, value in found if value is not None]


def _evaluated(folder: pathlib.Path) -> list[pathlib.Path]:
  """Workdirs that a folder's results name; by default the folder itself."""
  found = []
  for name in _FILES:
    rows = read_rows(folder / name)
    if not rows:
      continue
    settings = json.loads((folder / name).read_text()).get('settings', {})
    for fields in (settings, settings.get('evaluate', {}), rows[0]):
      for key in ('workdir', 'model_workdir'):
        if key in fields:
          found.append(pathlib.Path(fields[key] or folder))
  return list({path.resolve(): path for path in found}.values()) or [folder]


def describe(folder: pathlib.Path) -> str:
  """Describe the scale of a folder's results: model, training, datastore."""
  runs = _evaluated(folder)
  if [run.resolve() for run in runs] == [folder.resolve()]:
    return _scale(folder)
  return '; '.join(f'of {run}, {_scale(run)}' for run in runs)


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
  if 'qa' in c:
    # The length of a question's row is not given by sequence_chunks.
    parts.append(f'{saved.step:,} steps of {c.batch_size:,} questions')
  else:
    length = c.sequence_chunks * c.model.chunk_length
    tokens = saved.step * c.batch_size * length
    parts += [f'{saved.step:,} steps', f'{tokens / 1e6:,.1f} M tokens']
  if 'qa' in c and c.retrieval and c.qa.passages:
    parts.append(f'{c.qa.num_passages} passages a question, from files')
  elif c.retrieval and c.get('qa', {}).get('reader') != 'closed_book':
    parts.append(_datastore(c, run))
  return ', '.join(parts)


def _datastore(config: ml_collections.ConfigDict, run: pathlib.Path) -> str:
  """Size of the datastore that a run retrieves from, if it still exists."""
  data = retro_data.DataFolder.of(config, run)
  try:
    chunks = data.chunks('train')
  except (FileNotFoundError, ValueError):
    return f'datastore unknown: none in {data.root}'
  tokens = int(chunks.lengths(np.arange(chunks.num_chunks)).sum())
  return f'datastore of {chunks.num_chunks:,} chunks, {tokens:,} tokens'
