# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The scale of runs: model, training and datastore, for captions of tables."""

import math
import pathlib

import jax
import ml_collections
import numpy as np

from experiments.tables import paper_table
from realm_jax.data import folder as realm_data
from retrieval.store import checkpoints
from retro_jax.data import folder as retro_data


def describe(folder: pathlib.Path) -> str:
  """Describe the scale of a folder's results: model, training, datastore."""
  found = {}  # workdirs that the results name; by default the folder itself
  for path in sorted(folder.glob('*.json')):
    content, rows = paper_table.read_results(path)
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
