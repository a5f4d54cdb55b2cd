# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""How much the neighbors hold: what a copier of their n-grams would gain.

  python -m experiments.retro.copying --config=configs/<name>.py --workdir=DIR

Mixes the newest model of DIR, a baseline or a RETRO with retrieval off, with the
n-grams of each chunk's neighbors, and with those of shuffled ones (see
retro_jax.evaluation.copying). The few weights of the mixture are fitted on what is scored.
A RETRO that reads its neighbors well gains as much and more. Prints a table and
writes DIR/copying.json.
"""

import dataclasses
import functools
import json
import pathlib

import jax
import ml_collections
import rich.box
import rich.table

from experiments.engine import command
from experiments.engine import progress
from experiments.retro import evaluate as retro_evaluate
from experiments.retro import task as retro_task
from retrieval.store import store
from retro_jax.evaluation import copying
from retro_jax.evaluation import evaluate

FILE = 'copying.json'


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Evaluates the mixtures, prints the table and writes the file."""
  if jax.process_count() > 1:
    raise ValueError('retro_copying runs in one process.')
  settings = config.evaluate
  k = retro_evaluate.numbers_of_neighbors(settings)[0]
  trained = retro_task.load(settings.workdir or workdir, config.data_dir)
  reader = retro_task.chunk_reader(trained.config, trained.data, 'valid', k)
  length = trained.model.config.chunk_length
  params = jax.device_put(trained.params)
  nats = functools.partial(retro_task.batch_nll, trained.model, params)
  rows = []
  for retrieval, name in (('on', 'neighbors'), ('shuffled', 'shuffled ones')):
    mixture = copying.Mixture(nats, length)
    measure = functools.partial(
      retro_evaluate.measure,
      *(mixture, reader, trained, config, retrieval),
    )
    alone = measure(f'alone, {retrieval}')
    if not rows:
      rows.append(('model alone', alone, None, []))
    mixture.fit()
    mixed = measure(f'with n-grams, {retrieval}')
    gain = evaluate.compare(mixed, alone)
    weights = [round(float(w), 2) for w in mixture.weights]
    rows.append((f'with n-grams of {name}', mixed, gain, weights))
  _report(rows, k, pathlib.Path(workdir))


def _report(rows, k: int, workdir: pathlib.Path) -> None:
  table = rich.table.Table(
    title=f'What {k} neighbors of each chunk hold', box=rich.box.SIMPLE_HEAD
  )
  table.add_column('model', no_wrap=True)
  for name in ('bits/byte', 'gain', 'interval', 'weights of n = 0, 1, ...'):
    table.add_column(name, justify='right')
  content = []
  for name, found, gain, weights in rows:
    table.add_row(
      name,
      f'{found.bits_per_byte:.4f}',
      f'{gain.mean:+.4f}' if gain else '',
      f'{gain.low:+.4f} {gain.high:+.4f}' if gain else '',
      ' '.join(map(str, weights)),
    )
    content.append(
      {
        'name': name,
        **found.summary(),
        'minus_alone': dataclasses.asdict(gain) if gain else None,
        'weights': weights,
      }
    )
  progress.console().print(table)
  data = json.dumps({'num_neighbors': k, 'rows': content}, indent=2) + '\n'
  store.write_atomically(workdir / FILE, data.encode())


if __name__ == '__main__':
  command.main(run, computes=True)
