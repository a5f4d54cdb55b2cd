# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluators `copying` and `editing`: how far copies of the neighbors go.

copying: the model, a baseline or a RETRO with retrieval off, is mixed with the n-grams
  of each chunk's neighbors, and with those of shuffled neighbors (see
  retro_jax.evaluation.copying), on the set config.evaluate.split. The few weights of
  the mixture are fitted to the split valid (to test, where valid is scored). A RETRO
  that reads its neighbors well gains at least as much.
editing: the model writes what is not copied of each chunk's nearest neighbors (the
  first of --config.evaluate.num_neighbors says how many) and of shuffled ones; see
  retro_jax.evaluation.editing. The weights of the operations are fitted to one half of
  the documents and score the other half, and vice versa: no document is scored by
  weights that were fitted to it.

Each prints a table and writes DIR/copying.json or DIR/editing.json.
"""

import functools
import pathlib

import jax

from experiments.engine import stages
from experiments.retro import (
  config as config_lib,
  evaluate as retro_evaluate,
  rows as rows_lib,
)
from retro_jax.evaluation import (
  copying as copying_lib,
  editing as editing_lib,
  evaluate as evaluate_lib,
)
from retro_jax.trained import loading

_NEIGHBORS = (('on', 'neighbors'), ('shuffled', 'shuffled ones'))


def _load(config, workdir, evaluate):
  """The run, its nats of each token, and what reads a split."""
  stages.check_alone()
  trained = retro_evaluate.load(config, evaluate, workdir, on_mesh=False)
  params = jax.device_put(trained.params)
  nats = functools.partial(loading.batch_nll, trained.model, params)

  def read(split):
    return loading.chunk_reader(trained.config, trained.data, split, evaluate.k)

  return trained, nats, read


def _report(workdir, name, rows, title, **content) -> None:
  """Report rows (name, evaluation, weights) against the first one."""
  alone = rows[0][1]
  found = []
  for label, own, weights in rows:
    gain = None if own is alone else evaluate_lib.compare(own, alone)
    row = {'minus': {'minus_alone': gain}, 'fields': {'weights': weights}}
    found.append(rows_lib.Row(name=label, evaluation=own, **row))
  rows_lib.report(
    pathlib.Path(workdir) / f'{name}.json',
    found,
    title=title,
    caption='Minus alone: bits per byte less those of the model alone. Weights are '
    'fitted to other documents. ',
    **content,
  )


def copying(
  config: config_lib.Config, workdir: str, evaluate: retro_evaluate.Evaluate
) -> None:
  """Evaluate mixtures with n-grams."""
  trained, nats, read = _load(config, workdir, evaluate)
  scored = read(evaluate.split)
  fitted = read('test' if evaluate.split == 'valid' else 'valid')
  length = trained.model.config.chunk_length

  def measure(mixture, reader, retrieval, name):
    name = f'{name}, {retrieval}'
    return retro_evaluate.measure(
      mixture, reader, trained, evaluate, retrieval, name, config.seed
    )

  alone = measure(copying_lib.Mixture(nats, length), scored, 'on', 'alone')
  rows = [('model alone', alone, [])]
  for retrieval, name in _NEIGHBORS:
    mixture = copying_lib.Mixture(nats, length)
    measure(mixture, fitted, retrieval, 'fit')
    mixture.fit()
    mixed = measure(mixture, scored, retrieval, 'with n-grams')
    weights = [round(float(w), 2) for w in mixture.weights]
    rows.append((f'with n-grams of {name}', mixed, weights))
  k = evaluate.k
  title = f'What {k} neighbors of each chunk hold'
  _report(workdir, 'copying', rows, title, num_neighbors=k)


def editing(
  config: config_lib.Config, workdir: str, evaluate: retro_evaluate.Evaluate
) -> None:
  """Evaluate edits of the neighbors."""
  trained, nats, read = _load(config, workdir, evaluate)
  rows, source, k = [], trained.data.source, evaluate.k
  how = {'seed': config.seed, 'read': editing_lib.collect}
  for retrieval, name in _NEIGHBORS:
    reader = read(evaluate.split)
    alone, examples = retro_evaluate.measure(
      nats, reader, trained, evaluate, retrieval, 'alone', **how
    )
    rows = rows or [('model alone', alone, [])]
    edited, weights = editing_lib.cross_fit(examples)
    found = editing_lib.edited(alone, examples, edited)
    # of either half of the documents: [runs, operations]
    rows.append((f'edits of {name}', found, [x.tolist() for x in weights]))
  title = f'{k} neighbors of each chunk by {source}, edited'
  facts = {'source': source, 'operations': editing_lib.OPERATIONS}
  _report(workdir, 'editing', rows, title, num_neighbors=k, **facts)
