# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Measure perplexity and bits per byte of a kNN-LM beside its model and RETRO.

  python -m experiments.evaluate --config=configs/knn_lm_small.py \
    --workdir=DIR --config.knn_lm.model_workdir=RUN \
    --config.knn_lm.retro_workdir=RETRO

Mixes RUN's newest model with the datastore that experiments.prepare made in DIR.
lambda, temperature and k are tuned on a random share of the held-out documents
(--config.knn_lm.tune_share); every figure is measured on the other documents.
--config.evaluate.split, stride_chunks and max_documents hold for every
row. Refuses a datastore that holds an evaluated document. Prints a table and writes
DIR/knn_lm.json. A killed search continues when run again.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import itertools
import pathlib

from absl import logging
import numpy as np

from experiments.engine import progress, stages
from experiments.knn_lm import prepare as knn_lm_prepare
from experiments.knn_lm.config import Config, KnnLm
from experiments.retro import evaluate as retro_evaluate, rows as rows_lib
from retrieval.store import array_store, manifests, shards
from retro_jax.data import windows as windows_lib
from retro_jax.evaluation import evaluate as evaluate_lib, knn_lm
from retro_jax.trained import language_model

FILE = 'knn_lm.json'
KIND = 'token-neighbors'
TOKENS_PER_SHARD = 1 << 14
_QUERIES = 4096  # searched in one call
Evaluate = retro_evaluate.Evaluate


def look_up(
  reader: knn_lm_prepare.Reader, datastore: knn_lm_prepare.Datastore
) -> array_store.Store:
  """Find the neighbors of every token, once for all settings; a killed one continues.

  Args:
    reader: of the evaluated documents, with the model that made the keys.

  Returns:
    The published store. Arrays: nats, targets and document [n] of the tokens
    (document: row in `reader.documents`); distances and values [n, k].
  """
  k, chunks = max(reader.config.knn_lm.ks), reader.chunks.stores.chunks
  fields = {
    'reader': reader.chunks.fingerprint,
    'stride_chunks': reader.sizes.stride_chunks,
    'batch_size': reader.sizes.batch_size,
    'max_documents': reader.sizes.max_documents,
    'datastore': datastore.pairs.fingerprint,  # depends on the model
    'index': datastore.index.fingerprint,
    'k': k,
  }
  groups = reader.groups
  counts = [int(windows_lib.num_targets(chunks, x).sum()) for x in groups]

  def find(shard: int, update: shards.Progress | None):
    tokens, count = reader.read(shard), counts[shard]
    distances = np.zeros((count, k), np.float32)
    values = np.zeros((count, k), chunks.tokens.tokens.dtype)
    for low in range(0, count, _QUERIES):
      at = slice(low, min(low + _QUERIES, count))
      distances[at], values[at] = datastore.search(tokens.keys[at], k)
      if update:
        update(at.stop, count)
    before = sum(len(group.index) for group in groups[:shard])
    return {
      'nats': tokens.nats,
      'targets': tokens.targets,
      'document': tokens.document + before,
      'distances': distances,
      'values': values,
    }

  path = datastore.folder / f'found-{manifests.fingerprint(fields)[:12]}'
  with progress.bar('look up', 'tokens') as shown:
    return shards.build_store(path, KIND, fields, counts, find, progress=shown)


def sweep(
  looked_up: array_store.Store, settings: list[knn_lm.Setting], documents: int
) -> tuple[np.ndarray, dict[str, float]]:
  """Weigh the neighbors of every token by every setting.

  Returns:
    nats: [settings, documents] float64.
    found: k -> share of the tokens that are among the values of their k neighbors.
  """
  nats, ranks = np.zeros((len(settings), documents)), []
  with progress.bar('weigh', 'shards') as update:
    for i in range(looked_up.num_shards):
      names = 'nats', 'targets', 'document', 'distances', 'values'
      arrays = [np.asarray(looked_up.shard(i, name)) for name in names]
      nats += knn_lm.sweep(*arrays, settings, documents)
      _, targets, _, distances, values = arrays
      same = np.isfinite(distances) & (values == targets[:, None])
      ranks.append(np.where(same.any(1), same.argmax(1), same.shape[1]))
      update(i + 1, looked_up.num_shards)
  rank, ks = np.concatenate(ranks), sorted({k for k, _, _ in settings})
  return nats, {str(k): float(np.mean(rank < k)) for k in ks}


def choose_tuned(number: int, settings: KnnLm, seed: int) -> np.ndarray:
  """Draw a share of the documents for tuning; return [number] bool."""
  count = round(settings.tune_share * number)
  grid = settings.ks, settings.temperatures, settings.lambdas
  if count == number or (not count and max(map(len, grid)) > 1):
    raise ValueError(
      f'knn_lm.tune_share={settings.tune_share} of {number} documents: expected at '
      'least one to tune on, unless ks, temperatures and lambdas have one value '
      'each, and at least one to report.'
    )
  tuned = np.zeros(number, bool)
  tuned[np.random.default_rng(seed).permutation(number)[:count]] = True
  return tuned


def _fields(k, temperature, weight) -> dict[str, float]:
  fields = {'k': k, 'temperature': temperature, 'alpha': 1 / temperature}
  return fields | {'lambda': weight}


def _row(name, own, alone=None, setting=None) -> rows_lib.Row:
  """Row of the reported documents, with the setting of a kNN-LM."""
  cells, fields = ['', '', ''], {}
  if setting:
    fields, (k, temperature, weight) = _fields(*setting), setting
    cells = [f'{k}', f'{weight:.3g}', f'{temperature:.3g}']
  less = {'minus_alone': alone and evaluate_lib.compare(own, alone)}
  return rows_lib.Row(
    name=name, evaluation=own, minus=less, fields=fields, cells=cells
  )


def make_rows(
  measured: Mapping[knn_lm.Setting, Mapping[str, evaluate_lib.Evaluation]],
  grid: Sequence[knn_lm.Setting],
  alone: knn_lm.Setting,
  papers: knn_lm.Setting,
) -> list[rows_lib.Row]:
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
  own = measured[alone]['reported']
  rows = [_row('model alone', own)]
  for name, setting in chosen.items():
    rows.append(_row(name, measured[setting]['reported'], own, setting))
  return rows


def evaluate(config: Config, workdir: str, evaluate: Evaluate) -> None:
  """Evaluate, print the table and write knn_lm.json."""
  stages.check_alone()
  given = config.knn_lm
  trained = knn_lm_prepare.load(config, workdir, evaluate.step)
  chunks = trained.data.chunks(evaluate.split)
  documents = windows_lib.find_documents(chunks, evaluate.max_documents)
  tuned = choose_tuned(len(documents.index), given, config.seed)
  datastore = knn_lm_prepare.Datastore(workdir, trained, given)
  datastore.check_without(chunks, documents)
  retro = None
  if given.retro_workdir:  # raises errors before the search
    retro = language_model.load(given.retro_workdir, str(trained.data.root))
    modes = retro_evaluate.modes_of(retro, evaluate)
    retro_evaluate.open_readers(retro, evaluate, modes)
  reader = knn_lm_prepare.Reader(
    trained, config, evaluate, evaluate.split, documents, TOKENS_PER_SHARD
  )
  grid = [*itertools.product(given.ks, given.temperatures, given.lambdas)]
  most, fixed = max(given.ks), given.fixed
  alone, papers = (most, 1.0, 0.0), (most, 1 / fixed.alpha, fixed.weight)
  settings = [*dict.fromkeys((*grid, alone, papers))]
  nats, found = sweep(look_up(reader, datastore), settings, len(tuned))
  parts, measured = {'tuned_on': tuned, 'reported': ~tuned}, {}
  for setting, x in zip(settings, nats, strict=True):
    whole = evaluate_lib.of_documents(x, chunks, documents)
    measured[setting] = {k: whole.take(v) for k, v in parts.items()}
  rows = make_rows(measured, grid, alone, papers)
  if retro is not None:  # on the same documents, in its own windows
    for x in retro_evaluate.evaluate_trained(retro, config, evaluate):
      here = x.evaluation.take(~tuned)
      rows.append(_row(x.name, here, rows[0].evaluation))
  tried = []
  for x in grid:
    bits = {k: v.bits_per_byte for k, v in measured[x].items() if len(v.nats)}
    tried.append(_fields(*x) | bits)
  keys, dimension = datastore.keys.shape
  path = pathlib.Path(workdir) / FILE
  rows_lib.report(
    path,
    rows,
    title=f'Chosen on {tuned.sum():,} documents, datastore of {keys:,} keys',
    caption='Minus alone: bits per byte less those of the model alone. ',
    heads=('k', 'lambda', 'temp'),
    tuned_documents=int(tuned.sum()),
    tuned_on=documents.index[tuned].tolist(),
    target_found=found,
    sweep=tried,
    datastore={
      'path': str(datastore.pairs.path),
      'keys': keys,
      'dimension': dimension,
      'documents': sum(datastore.pairs.rows('documents')),
      'index': datastore.index.report,
    },
    step=trained.step,
    settings=dataclasses.asdict(given),
    evaluate=dataclasses.asdict(evaluate),
  )
  logging.info('The figures are in %s.', path)
