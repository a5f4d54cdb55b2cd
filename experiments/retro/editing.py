# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluator `editing`: a retrieve-and-edit baseline, neighbors copied with edits.

The model, a baseline or a RETRO with retrieval off, writes what is not copied of each
chunk's nearest neighbors (the first of --config.evaluate.num_neighbors says how many;
1 is the nearest alone) and of shuffled ones; see retro_jax.evaluation.editing. The
weights of the operations are fitted to one half of the documents of
config.evaluate.split and score the other half, and vice versa: no document is scored
by weights that were fitted to it. Prints a table and writes DIR/editing.json.
"""

import functools

import jax

from experiments.engine import progress, reports
from experiments.retro import config as config_lib, evaluate as retro_evaluate
from retro_jax.evaluation import editing, evaluate as evaluate_lib
from retro_jax.trained import loading

FILE = 'editing.json'


def _collect(trained, evaluate: retro_evaluate.Evaluate, seed, shuffled: bool):
  """The model's own evaluation, and the examples of editing."""
  params = jax.device_put(trained.params)
  chunks = trained.config.sequence_chunks
  with progress.bar('evaluate alone', 'chunks') as update:
    return editing.collect(
      functools.partial(loading.batch_nll, trained.model, params),
      loading.chunk_reader(
        trained.config, trained.data, evaluate.split, evaluate.k
      ),
      sequence_chunks=chunks,
      stride_chunks=evaluate.stride(chunks),
      batch_size=evaluate.batch_size,
      shuffled=shuffled,
      max_documents=evaluate.max_documents,
      seed=seed,
      progress=update,
    )


def run(
  config: config_lib.Config, workdir: str, evaluate: retro_evaluate.Evaluate
) -> None:
  """Evaluate the edits, print the table and write the file."""
  retro_evaluate.check_alone('editing')
  trained = retro_evaluate.load(config, evaluate, workdir, on_mesh=False)
  rows, source = [], trained.data.source
  for shuffled, name in ((False, 'neighbors'), (True, 'shuffled ones')):
    alone, examples = _collect(trained, evaluate, config.seed, shuffled)
    if not rows:
      rows.append(('model alone', alone, None, {'weights': []}))
    nats, weights = editing.cross_fit(examples)
    found = editing.edited(alone, examples, nats)
    gain = evaluate_lib.compare(found, alone)
    # of either half of the documents: [runs, operations]
    weights = {'weights': [x.tolist() for x in weights]}
    rows.append((f'edits of {name}', found, gain, weights))
  retro_evaluate.write_rows(
    workdir,
    FILE,
    rows,
    num_neighbors=evaluate.k,
    source=source,
    operations=editing.OPERATIONS,
  )
  reports.print_table(
    ('model', 'bits/byte', 'gain', 'interval', 'token ppl', 'word ppl'),
    [
      (name, *retro_evaluate.cells(found, gain))
      for name, found, gain, _ in rows
    ],
    title=f'{evaluate.k} neighbors of each chunk by {source}, edited',
    caption='Gain: bits per byte less those of the model alone; interval: 95 % of '
    'a paired bootstrap over documents. Weights are fitted to other documents.',
  )
