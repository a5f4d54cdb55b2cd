# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Measure the gain from copying n-grams of the neighbors.

  python -m experiments.retro.copying --config=configs/<name>.py --workdir=DIR

Mixes the newest model of DIR, a baseline or a RETRO with retrieval off, with
the n-grams of each chunk's neighbors, and with those of shuffled neighbors (see
retro_jax.evaluation.copying), on the set config.evaluate.split. The few weights
of the mixture are fitted to the split valid (to test, where valid is scored). A
RETRO that reads its neighbors well gains at least as much. Prints a table and writes
DIR/copying.json.
"""

import dataclasses
import functools
import pathlib

import jax
import ml_collections

from experiments.engine import command, reports
from experiments.retro import (
  evaluate as retro_evaluate,
  settings as settings_lib,
)
from retro_jax.evaluation import copying, evaluate
from retro_jax.trained import loading

FILE = 'copying.json'


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Evaluate the mixtures, print the table and write the file."""
  if jax.process_count() > 1:
    raise ValueError('experiments.retro.copying runs in one process.')
  settings = config.evaluate
  k = retro_evaluate.numbers_of_neighbors(settings)[0]
  trained, _ = retro_evaluate.load(
    config, settings.workdir or workdir, on_mesh=False
  )
  other = 'test' if settings.split == 'valid' else 'valid'
  scored, fitted = (
    loading.chunk_reader(trained.config, trained.data, split, k)
    for split in (settings.split, other)
  )
  length = trained.model.config.chunk_length
  params = jax.device_put(trained.params)
  nats = functools.partial(loading.batch_nll, trained.model, params)

  def measure(mixture, reader, retrieval, name):
    return retro_evaluate.measure(
      mixture, reader, trained, config, retrieval, f'{name}, {retrieval}'
    )

  alone = measure(copying.Mixture(nats, length), scored, 'on', 'alone')
  rows = [('model alone', alone, None, [])]
  for retrieval, name in (('on', 'neighbors'), ('shuffled', 'shuffled ones')):
    mixture = copying.Mixture(nats, length)
    measure(mixture, fitted, retrieval, 'fit')
    mixture.fit()
    mixed = measure(mixture, scored, retrieval, 'with n-grams')
    gain = evaluate.compare(mixed, alone)
    weights = [round(float(w), 2) for w in mixture.weights]
    rows.append((f'with n-grams of {name}', mixed, gain, weights))
  content = [
    {
      'name': name,
      **found.summary(),
      'minus_alone': gain and dataclasses.asdict(gain),
      'weights': weights,
    }
    for name, found, gain, weights in rows
  ]
  path = pathlib.Path(workdir) / FILE
  reports.write_json(path, {'num_neighbors': k, 'rows': content})
  reports.print_table(
    ('model', 'bits/byte', 'gain', 'interval', 'weights of n = 0, 1, ...'),
    [
      (
        name,
        *retro_evaluate.cells(found, gain)[:3],
        ' '.join(map(str, weights)),
      )
      for name, found, gain, weights in rows
    ],
    title=f'What {k} neighbors of each chunk hold',
  )


if __name__ == '__main__':
  command.main(run, settings_lib.Settings, writes=FILE)
