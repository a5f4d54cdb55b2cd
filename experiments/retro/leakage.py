# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluator `leakage`: bits per byte by how much of the text is in the training data.

  python -m experiments.evaluate --config=configs/<name>.py --workdir=DIR \
    --config.evaluate.evaluators=leakage --config.evaluate.baseline_workdir=BASELINE

Measures r(C) of every held-out chunk against its
--config.evaluate.leakage.num_neighbors nearest training chunks, and the bits per byte
over the chunks with r(C) <= alpha for RETRO with retrieval on and off and for the
baseline (Borgeaud et al. 2021, section 2.6). Prints a table and writes leakage.json, and
leakage.npz with the nats of each chunk, into DIR. With retrieval on, k is the first
number of --config.evaluate.num_neighbors.
"""

from collections.abc import Sequence
import dataclasses
import pathlib

import jax
import numpy as np

from experiments.engine import evaluations, progress, reports
from experiments.retro import config as config_lib, evaluate as retro_evaluate
from retro_jax.data import windows
from retro_jax.evaluation import leakage as leakage_lib
from retro_jax.trained import loading

FILE = 'leakage.json'
_ALPHAS = tuple(i / 8 for i in range(1, 9))  # largest r(C) of each point


def measure(
  runs: Sequence[loading.TrainedRetro],
  config: config_lib.Config,
  evaluate: retro_evaluate.Evaluate,
) -> list[evaluations.Row]:
  """Evaluate a RETRO, and perhaps its baseline, chunk by chunk; filter by r(C).

  Returns:
    The nats and bytes of the chunks by each model; as facts the `points` of
    `leakage.curve`; of all but the first, RETRO with retrieval on, also `minus_on`, the
    first less the model.

  Raises:
    ValueError: where the tokens lose bytes.
  """
  data, k = runs[0].data, evaluate.leakage.num_neighbors
  nearest = loading.chunk_reader(runs[0].config, data, evaluate.split, k)
  chunks = nearest.stores.chunks  # refuses too few neighbors before any work
  documents = windows.find_documents(chunks, evaluate.max_documents)
  ids, document = windows.chunk_ids(documents)
  data.check_tokenizer()
  num_bytes = leakage_lib.count_bytes(chunks, ids, data.tokenizer)
  expected = chunks.tokens.num_bytes[documents.index]
  if not np.array_equal(np.bincount(document, num_bytes), expected):
    raise ValueError(
      f'{chunks.tokens.path}: its tokens stand for {int(num_bytes.sum()):,} bytes, '
      f'but its documents have {int(expected.sum()):,}.'
    )
  nats, steps = {}, {}
  for model in runs:
    readings = retro_evaluate.on_and_off(model, [evaluate.k])
    results = retro_evaluate.evaluate_trained(model, config, evaluate, readings)
    nats |= {name: x.chunk_nats for name, x in results.items()}
    steps |= dict.fromkeys(results, model.step)
  with progress.bar('overlaps', 'chunks') as update:
    overlap = leakage_lib.overlaps(nearest, ids, update)

  def points(values):
    curve = values, num_bytes, document, overlap
    return leakage_lib.curve(*curve, _ALPHAS)

  rows, on = [], next(iter(nats.values()))
  for name, values in nats.items():
    facts = {'step': steps[name], 'points': points(values)}
    if rows:
      facts['minus_on'] = points(on - values)
    row = {'values': {'': values}, 'num_bytes': num_bytes, 'facts': facts}
    rows.append(evaluations.Row(name=name, **row))
  return rows


def _print(rows: Sequence[evaluations.Row]) -> None:
  first, *others = rows
  lines = []
  for i, point in enumerate(first.facts['points']):
    if not point['chunks']:
      continue
    cells = [f'{100 * point["alpha"]:g} %', f'{100 * point["share"]:.1f} %']
    cells.append(f'{point["documents"]:,}')
    cells += [f'{row.facts["points"][i]["bits_per_byte"]:.4f}' for row in rows]
    for x in (row.facts['minus_on'][i] for row in others):
      interval = reports.ends(x, '+.4f')
      cells.append(f'{x["bits_per_byte"]:+.4f}\n{interval}')
    lines.append(cells)
  names = [*(x.name for x in rows), *(f'less {x.name}' for x in others)]
  reports.print_table(
    ('alpha', 'chunks', 'documents', *names),
    lines,
    title='Bits per byte over chunks with r(C) <= alpha',
    caption=f'{first.name} less the others, with the 95 % interval of a '
    'paired bootstrap over documents.',
  )


def leakage(
  config: config_lib.Config, workdir: str, evaluate: retro_evaluate.Evaluate
) -> None:
  """Measure, print the table and write the files."""
  runs = retro_evaluate.load_runs(config, evaluate, workdir)
  rows = measure([*runs.values()], config, evaluate)
  if not jax.process_index():
    path = pathlib.Path(workdir) / FILE
    evaluations.write(path, rows, settings=dataclasses.asdict(evaluate))
    _print(rows)
