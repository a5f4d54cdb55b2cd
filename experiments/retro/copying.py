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
import numpy as np

from experiments.engine import stages
from experiments.retro import (
  config as config_lib,
  evaluate as retro_evaluate,
  rows as rows_lib,
)
from retrieval.store import manifests
from retro_jax.data import pipeline
from retro_jax.evaluation import copying as copying_lib, referee
from retro_jax.trained import language_model, loading, scorers

FILE = 'copying.json'
_ALONE = 'model alone'
_MIXED = 'with n-grams of neighbors'


def copying(
  config: config_lib.Config, workdir: str, evaluate: retro_evaluate.Evaluate
) -> None:
  """Evaluate mixtures with n-grams."""
  stages.check_alone()
  trained = retro_evaluate.load(config, evaluate, workdir, on_mesh=False)
  params, k = jax.device_put(trained.params), evaluate.k
  nats = functools.partial(loading.batch_nll, trained.model, params)
  length = trained.model.config.chunk_length
  open_reader = functools.partial(
    loading.chunk_reader, trained.config, trained.data
  )
  scored = open_reader(evaluate.split, k)
  fitted = open_reader('test' if evaluate.split == 'valid' else 'valid', k)

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
    pathlib.Path(workdir) / FILE,
    rows,
    {'minus_alone': _ALONE},
    title=f'{k} neighbors of each chunk, copied',
    caption='Minus alone: bits per byte less those of the model alone. Weights are '
    'fitted to other documents. ',
    num_neighbors=k,
    settings=dataclasses.asdict(evaluate),
  )


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class CopyingModel(language_model.LanguageModel):
  """A model without retrieval, mixed with the n-grams of neighbors."""

  weights: np.ndarray  # as of `copying.Mixture`

  def _retrieve_fn(self, k: int):
    return (
      self.data.datastore.lookup(self.config).retrieve_tokens if k else None
    )

  def _log_probs(self, row: pipeline.Row, places: np.ndarray) -> np.ndarray:
    bare, c = pipeline.without_neighbors(row), self.model.config
    alone = scorers.distributions(self.model, self.params, bare, places)
    order, shares = copying_lib.distributions(row, c.chunk_length, c.vocab_size)
    at = np.arange(len(places))[:, None], places
    weight = np.where(order[at] < 0, 0, self.weights[order[at]])[..., None]
    probs = np.exp(np.asarray(alone, np.float64))
    with np.errstate(divide='ignore'):
      return np.log((1 - weight) * probs + weight * shares[at])

  def _token_scorer(self):
    """As the evaluator: by the share of the target alone."""
    nats = functools.partial(loading.batch_nll, self.model, self.params)
    mixture = copying_lib.Mixture(nats, self.model.config.chunk_length)
    mixture.weights = self.weights

    def score(row):
      places = np.broadcast_to(
        np.arange(row['tokens'].shape[1]), row['tokens'].shape
      )
      likeliest = self._log_probs(row, places).argmax(-1)
      return mixture(row), (likeliest == row['targets']) | ~row['loss_mask']

    return score

  def scorer(self, num_neighbors: int | None = None) -> referee.Scorer:
    """Return what the referee judges."""
    k = self._num_neighbors(num_neighbors)
    return scorers.with_memory(
      dataclasses.replace(
        scorers.of(self, 0),
        score=functools.partial(self.loglikelihood, num_neighbors=k),
      ),
      scorers.ask(self, k, self._log_probs),
      functools.partial(scorers.memory_tokens, self.data),
      scorers.memory_bytes(self.data),
    )


def load(model: language_model.LanguageModel, workdir: str) -> CopyingModel:
  """Return a model with the mixture that the evaluator wrote into its folder."""
  content = manifests.read_object(pathlib.Path(workdir) / FILE)
  [weights] = [x['weights'] for x in content['rows'] if x['name'] == _MIXED]
  # The weights were fitted to so many neighbors.
  k = content['num_neighbors']
  config = dataclasses.replace(model.config, num_neighbors=k)
  return CopyingModel(
    **vars(model) | {'config': config}, weights=np.array(weights)
  )
