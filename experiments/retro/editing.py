# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Measure a retrieve-and-edit baseline: neighbors copied with edits.

  python -m experiments.retro.editing --config=configs/<name>.py --workdir=DIR

The newest model of DIR, a baseline or a RETRO with retrieval off, writes what is not
copied of each chunk's nearest neighbors (the first of --config.evaluate.num_neighbors
says how many; 1 is the nearest alone) and of shuffled ones; see
retro_jax.evaluation.editing. The weights of the operations are fitted to one half of
the documents of config.evaluate.split and score the other half, and vice versa: no
document is scored by weights that were fitted to it. Prints a table and writes
DIR/editing.json.
"""

import dataclasses
import functools
import pathlib

import jax
import ml_collections

from experiments.engine import command, progress, reports
from experiments.retro import (
  evaluate as retro_evaluate,
  settings as settings_lib,
)
from retro_jax.evaluation import editing, evaluate
from retro_jax.trained import loading

FILE = 'editing.json'


def _collect(trained, config, k: int, shuffled: bool):
  """The model's own evaluation, and the examples of editing."""
  settings, params = config.evaluate, jax.device_put(trained.params)
  with progress.bar('evaluate alone', 'chunks') as update:
    return editing.collect(
      functools.partial(loading.batch_nll, trained.model, params),
      loading.chunk_reader(trained.config, trained.data, settings.split, k),
      sequence_chunks=trained.config.sequence_chunks,
      stride_chunks=retro_evaluate.stride_chunks(
        settings, trained.config.sequence_chunks
      ),
      batch_size=settings.batch_size,
      shuffled=shuffled,
      max_documents=settings.max_documents,
      seed=config.seed,
      progress=update,
    )


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Evaluate the edits, print the table and write the file."""
  if jax.process_count() > 1:
    raise ValueError('experiments.retro.editing runs in one process.')
  settings = config.evaluate
  k = retro_evaluate.numbers_of_neighbors(settings)[0]
  trained, _ = retro_evaluate.load(
    config, settings.workdir or workdir, on_mesh=False
  )
  rows = []
  for shuffled, name in ((False, 'neighbors'), (True, 'shuffled ones')):
    alone, examples = _collect(trained, config, k, shuffled)
    if not rows:
      rows.append(('model alone', alone, None, []))
    nats, weights = editing.cross_fit(examples)
    found = editing.edited(alone, examples, nats)
    gain = evaluate.compare(found, alone)
    rows.append((f'edits of {name}', found, gain, weights))
  content = [
    {
      'name': name,
      **found.summary(),
      'minus_alone': gain and dataclasses.asdict(gain),
      # of either half of the documents: [runs, operations]
      'weights': [x.tolist() for x in weights],
    }
    for name, found, gain, weights in rows
  ]
  reports.write_json(
    pathlib.Path(workdir) / FILE,
    {
      'num_neighbors': k,
      'source': trained.data.source,
      'operations': editing.OPERATIONS,
      'rows': content,
    },
  )
  reports.print_table(
    ('model', 'bits/byte', 'gain', 'interval', 'token ppl', 'word ppl'),
    [
      (name, *retro_evaluate.cells(found, gain))
      for name, found, gain, _ in rows
    ],
    title=f'{k} neighbors of each chunk by {trained.data.source}, edited',
    caption='Gain: bits per byte less those of the model alone; interval: 95 % of '
    'a paired bootstrap over documents. Weights are fitted to other documents.',
  )


if __name__ == '__main__':
  command.main(run, settings_lib.Settings, writes=FILE)
