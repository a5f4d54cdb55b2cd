# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluator `copying`: the gain from copying n-grams of the neighbors.

Mixes the model, a baseline or a RETRO with retrieval off, with the n-grams of each
chunk's neighbors, and with those of shuffled neighbors (see
retro_jax.evaluation.copying), on the set config.evaluate.split. The few weights
of the mixture are fitted to the split valid (to test, where valid is scored). A
RETRO that reads its neighbors well gains at least as much. Prints a table and writes
DIR/copying.json.
"""

import functools

import jax

from experiments.engine import reports
from experiments.retro import config as config_lib, evaluate as retro_evaluate
from retro_jax.evaluation import copying, evaluate as evaluate_lib
from retro_jax.trained import loading

FILE = 'copying.json'


def run(
  config: config_lib.Config, workdir: str, evaluate: retro_evaluate.Evaluate
) -> None:
  """Evaluate the mixtures, print the table and write the file."""
  retro_evaluate.check_alone('copying')
  trained = retro_evaluate.load(config, evaluate, workdir, on_mesh=False)
  other = 'test' if evaluate.split == 'valid' else 'valid'
  scored, fitted = (
    loading.chunk_reader(trained.config, trained.data, split, evaluate.k)
    for split in (evaluate.split, other)
  )
  length = trained.model.config.chunk_length
  params = jax.device_put(trained.params)
  nats = functools.partial(loading.batch_nll, trained.model, params)

  def measure(mixture, reader, retrieval, name):
    name = f'{name}, {retrieval}'
    return retro_evaluate.measure(
      mixture, reader, trained, evaluate, retrieval, name, config.seed
    )

  alone = measure(copying.Mixture(nats, length), scored, 'on', 'alone')
  rows = [('model alone', alone, None, {'weights': []})]
  for retrieval, name in (('on', 'neighbors'), ('shuffled', 'shuffled ones')):
    mixture = copying.Mixture(nats, length)
    measure(mixture, fitted, retrieval, 'fit')
    mixture.fit()
    mixed = measure(mixture, scored, retrieval, 'with n-grams')
    gain = evaluate_lib.compare(mixed, alone)
    weights = [round(float(w), 2) for w in mixture.weights]
    rows.append((f'with n-grams of {name}', mixed, gain, {'weights': weights}))
  retro_evaluate.write_rows(workdir, FILE, rows, num_neighbors=evaluate.k)
  reports.print_table(
    ('model', 'bits/byte', 'gain', 'interval', 'weights of n = 0, 1, ...'),
    [
      (
        name,
        *retro_evaluate.cells(found, gain)[:3],
        ' '.join(map(str, more['weights'])),
      )
      for name, found, gain, more in rows
    ],
    title=f'What {evaluate.k} neighbors of each chunk hold',
  )
