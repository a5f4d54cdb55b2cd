# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Measure perplexity and bits per byte of a kNN-LM beside its model and RETRO.

The newest model is mixed with the datastore that experiments.prepare made in DIR.
lambda, temperature and k are tuned on a random half of the held-out documents, and
every figure is measured on the other half; with config.knn_lm.tune_split they are tuned
on that split, and figures are of all documents. Refuses a datastore that may hold an
evaluated document. Prints a table and writes DIR/knn_lm.json, and the nats of each
document to .npz beside it. `load` returns an evaluated kNN-LM as a model.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
import itertools
import os
import pathlib
from typing import Any

from absl import logging
import jax
import numpy as np

from experiments.engine import evaluations, progress, stages
from experiments.knn_lm import prepare as knn_lm_prepare
from experiments.knn_lm.config import Config
from experiments.retro import evaluate as retro_evaluate, rows as rows_lib
from retrieval.store import manifests
from retro_jax.data import windows as windows_lib
from retro_jax.evaluation import (
  evaluate as evaluate_lib,
  knn_lm,
  reached,
  referee,
)
from retro_jax.trained import language_model, loading, scorers

FILE = 'knn_lm.json'
TOKENS_PER_GROUP = 1 << 14
_QUERIES = 4096  # searched and weighed in one call
_ALONE = 'model alone'
_CHOSEN = (
  'Of kNN-LM: k {k}, lambda {lambda:.3g}, temperature {temperature:.3g}. '
  'Minus alone: bits per byte less those of the model alone. '
)
_LAMBDA, _ALPHA = 0.118, 0.00785  # the paper's, which are not tuned
Evaluate = retro_evaluate.Evaluate
_distributions = jax.jit(knn_lm.token_distributions, static_argnames='model')


def measure(
  reader: knn_lm_prepare.Reader,
  datastore: knn_lm_prepare.Datastore,
  settings: Sequence[knn_lm.Setting],
) -> np.ndarray:
  """Weigh the neighbors of every token by every setting.

  Args:
    reader: of the evaluated documents, with the model that made the keys.

  Returns:
    Nats, [settings, documents] float64.
  """
  k, documents = max(k for k, _, _ in settings), reader.documents
  chunks = reader.chunks.stores.chunks
  total = int(windows_lib.num_targets(chunks, documents).sum())
  nats, before, done = np.zeros((len(settings), len(documents.index))), 0, 0
  with progress.bar('look up', 'tokens') as update:
    for i, group in enumerate(reader.groups):
      tokens = reader.read(i)
      for low in range(0, len(tokens.nats), _QUERIES):
        at = slice(low, low + _QUERIES)
        nats += knn_lm.sweep(
          tokens.nats[at],
          tokens.targets[at],
          before + tokens.document[at],
          *datastore.search(tokens.keys[at], k),
          settings,
          len(documents.index),
        )
        done += len(tokens.nats[at])
        update(done, total)
      before += len(group.index)
  return nats


def _fields(k, temperature, weight) -> dict[str, float]:
  fields = {'k': k, 'temperature': temperature, 'alpha': 1 / temperature}
  return fields | {'lambda': weight}


def make_rows(
  measured: Mapping[knn_lm.Setting, Mapping[str, evaluate_lib.Evaluation]],
  grid: Sequence[knn_lm.Setting],
  alone: knn_lm.Setting,
  papers: knn_lm.Setting,
) -> list[evaluations.Row]:
  """Rows of the model alone and of the kNN-LM: tuned, per k, and the paper's.

  Args:
    measured: of each setting the documents 'tuned_on' and those 'reported'.
    grid: settings that are tuned.
  """

  def best(among):
    return min(among, key=lambda x: measured[x]['tuned_on'].nats.sum())

  chosen = {'kNN-LM': best(grid)}
  ks = dict.fromkeys(k for k, _, _ in grid)
  for k in ks if len(ks) > 1 else ():
    chosen[f'kNN-LM, k={k}'] = best([x for x in grid if x[0] == k])
  chosen["kNN-LM, paper's"] = papers
  rows = [rows_lib.of(_ALONE, measured[alone]['reported'])]
  for name, setting in chosen.items():
    result = measured[setting]['reported']
    rows.append(rows_lib.of(name, result, **_fields(*setting)))
  return rows


def measure_parts(
  config: Config,
  trained: loading.TrainedRetro,
  datastore: knn_lm_prepare.Datastore,
  run: Evaluate,
  settings: Sequence[knn_lm.Setting],
  tuned: np.ndarray,
) -> dict[knn_lm.Setting, dict[str, Any]]:
  """Measure the tuning documents and the reported documents.

  Args:
    tuned: which of the evaluated documents tune, [documents] bool.

  Returns:
    For each setting evaluations of the documents 'tuned_on' and of those 'reported'.
  """

  def score(split):
    chunks = trained.data.chunks(split)
    documents = windows_lib.find_documents(chunks, run.max_documents)
    how = TOKENS_PER_GROUP, run.batch_size, run.stride_chunks
    reader = knn_lm_prepare.Reader(trained, config, split, documents, *how)
    nats = measure(reader, datastore, settings)
    return [evaluate_lib.of_documents(x, chunks, documents) for x in nats]

  tune_split, whole = config.knn_lm.tune_split, score(run.split)
  tuning = score(tune_split) if tune_split else [x.take(tuned) for x in whole]
  return {
    setting: {'tuned_on': x, 'reported': y.take(~tuned)}
    for setting, x, y in zip(settings, tuning, whole, strict=True)
  }


def evaluate(config: Config, workdir: str, run: Evaluate) -> None:
  """Evaluate, print the table and write knn_lm.json."""
  stages.check_alone()
  options = config.knn_lm
  trained = knn_lm_prepare.load(config, workdir, run.step)
  chunks = trained.data.chunks(run.split)
  documents = windows_lib.find_documents(chunks, run.max_documents)
  datastore = knn_lm_prepare.Datastore(workdir, trained, chunks)
  number, retro = len(documents.index), None
  tuned = np.zeros(number, bool)
  if not options.tune_split:
    if number < 2:
      raise ValueError(
        f'{number} documents: expected one to tune on, one to report.'
      )
    drawn = np.random.default_rng(config.seed).permutation(number)
    tuned[drawn[: round(number / 2)]] = True
  if options.retro_workdir:  # raises errors before the search
    retro = language_model.load(options.retro_workdir, str(trained.data.root))
    for reading in retro_evaluate.readings_of(retro, run).values():
      retro_evaluate.open_reader(retro, run, reading)
  grid = [*itertools.product(options.ks, options.temperatures, options.lambdas)]
  most = max(options.ks)
  alone, papers = (most, 1.0, 0.0), (most, 1 / _ALPHA, _LAMBDA)
  settings = [*dict.fromkeys((*grid, alone, papers))]
  measured = measure_parts(config, trained, datastore, run, settings, tuned)
  rows = make_rows(measured, grid, alone, papers)
  if retro is not None:  # on the same documents, in its windows
    results = retro_evaluate.evaluate_trained(retro, config, run, root=workdir)
    rows += [rows_lib.of(k, x.take(~tuned)) for k, x in results.items()]
  tried = [
    _fields(*x) | {k: v.bits_per_byte for k, v in measured[x].items()}
    for x in grid
  ]
  keys, dimension = datastore.keys.shape
  path = pathlib.Path(workdir) / FILE
  rows_lib.report(
    path,
    rows,
    {'minus_alone': _ALONE},
    title=f'Chosen on {len(measured[alone]["tuned_on"].nats):,} documents, '
    f'datastore of {keys:,} keys',
    caption=_CHOSEN.format(**rows[1].facts),
    tuned_on=documents.index[tuned].tolist(),
    sweep=tried,
    datastore={
      'path': str(datastore.pairs.path),
      'keys': keys,
      'dimension': dimension,
      'index': datastore.index.report,
    },
    step=trained.step,
    settings=dataclasses.asdict(options),
    evaluate=dataclasses.asdict(run),
  )
  logging.info('The figures are in %s.', path)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class KnnLanguageModel(language_model.LanguageModel):
  """A model with the likelihoods of a kNN-LM; it draws no samples."""

  datastore: knn_lm_prepare.Datastore
  k: int  # nearest keys
  temperature: float  # of squared L2 distances
  weight: float  # lambda, of p_kNN

  @property
  def search(self) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Keys [n, D] -> distances and values [n, k]."""
    return functools.partial(self.datastore.search, k=self.k)

  def sample(self, *unused_prompts, **unused_settings):
    """Raise ValueError: there is no decoding with the datastore."""
    raise ValueError('A kNN-LM draws no samples: expected likelihoods alone.')

  def _token_scorer(self):
    params = jax.device_put(self.params)
    distributions = functools.partial(_distributions, self.model, params)
    return knn_lm.token_scorer(
      distributions, self.search, self.temperature, self.weight
    )

  def scorer(self, num_neighbors: int | None = None) -> referee.Scorer:
    """Return what the referee judges; num_neighbors is not used."""
    del num_neighbors
    params = jax.device_put(self.params)

    def mixed(row, places):
      log_lm, keys = map(np.asarray, _distributions(self.model, params, row))
      at = np.arange(len(places))[:, None], places
      flat = np.reshape(log_lm[at], (-1, log_lm.shape[-1]))
      nearest = self.search(np.reshape(keys[at], (len(flat), -1)))
      both = knn_lm.mix(flat, *nearest, self.temperature, self.weight)
      return both.reshape(*places.shape, -1)

    scorer = scorers.with_memory(
      scorers.of(self, 0),
      scorers.ask(self, 0, mixed),
      lambda: self.datastore.values[:].astype(np.int64),
      reached.files_bytes(self.datastore.pairs.path, self.datastore.index.path),
    )

    def num_bytes():
      stated = scorer.num_bytes()
      search = reached.search_bytes(self.datastore.index.searcher)
      return stated | {'caches': stated['caches'] + search}

    return dataclasses.replace(scorer, num_bytes=num_bytes)


def is_mixed(workdir: str | os.PathLike) -> bool:
  """Whether a folder is that of an evaluated kNN-LM."""
  return (pathlib.Path(workdir) / FILE).is_file()


def load(
  workdir: str | os.PathLike, data_dir: str = '', step: str = ''
) -> KnnLanguageModel:
  """Load the kNN-LM that experiments.evaluate tuned.

  Raises:
    ValueError: when its datastore or index is of another model.
  """
  path = pathlib.Path(workdir) / FILE
  content = manifests.read_object(path)
  chosen = next(row for row in content['rows'] if row['name'] == 'kNN-LM')
  run = content['settings']['model_workdir'] or workdir
  alone = language_model.load(run, data_dir, step=step)
  datastore = knn_lm_prepare.Datastore(workdir, alone)
  config = dataclasses.replace(alone.config, num_neighbors=0)
  return KnnLanguageModel(
    **vars(alone) | {'config': config},
    datastore=datastore,
    k=chosen['k'],
    temperature=chosen['temperature'],
    weight=chosen['lambda'],
  )
