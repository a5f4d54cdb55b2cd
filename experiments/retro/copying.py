# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluator `copying`: how far copies of the neighbors go.

The model, a baseline or a RETRO with retrieval off, is mixed with the n-grams of each
chunk's neighbors, and with those of shuffled neighbors (see
retro_jax.evaluation.copying), on the set config.evaluate.split. The few weights of the
mixture are fitted to the split valid (to test, where valid is scored). A RETRO that
reads its neighbors well gains at least as much. Prints a table and writes
DIR/copying.json.
"""

import dataclasses
import functools
import pathlib

import jax

from experiments.engine import stages
from experiments.retro import (
  config as config_lib,
  evaluate as retro_evaluate,
  rows as rows_lib,
)
from retro_jax.evaluation import copying as copying_lib
from retro_jax.trained import loading

_ALONE = 'model alone'


def copying(
  config: config_lib.Config, workdir: str, evaluate: retro_evaluate.Evaluate
) -> None:
  """Evaluate mixtures with n-grams."""
  stages.check_alone()
  trained = retro_evaluate.load(config, evaluate, workdir, on_mesh=False)
  params, k = jax.device_put(trained.params), evaluate.k
  nats = functools.partial(loading.batch_nll, trained.model, params)
  length = trained.model.config.chunk_length
  scored, fitted = (
    loading.chunk_reader(trained.config, trained.data, split, k)
    for split in (
      evaluate.split,
      'test' if evaluate.split == 'valid' else 'valid',
    )
  )

  def measure(mixture, reader, retrieval, name):
    name = f'{name}, {retrieval}'
    return retro_evaluate.measure(
      mixture, reader, trained, evaluate, retrieval, name, config.seed
    )

  alone = measure(copying_lib.Mixture(nats, length), scored, 'on', 'alone')
  rows = [rows_lib.of(_ALONE, alone, weights=[])]
  for retrieval, name in (('on', 'neighbors'), ('shuffled', 'shuffled ones')):
    mixture = copying_lib.Mixture(nats, length)
    measure(mixture, fitted, retrieval, 'fit')
    mixture.fit()
    mixed = measure(mixture, scored, retrieval, 'with n-grams')
    weights = [round(float(w), 2) for w in mixture.weights]
    rows.append(rows_lib.of(f'with n-grams of {name}', mixed, weights=weights))
  rows_lib.report(
    pathlib.Path(workdir) / 'copying.json',
    rows,
    {'minus_alone': _ALONE},
    title=f'{k} neighbors of each chunk, copied',
    caption='Minus alone: bits per byte less those of the model alone. Weights are '
    'fitted to other documents. ',
    num_neighbors=k,
    settings=dataclasses.asdict(evaluate),
  )
