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

import dataclasses
import math
import pathlib

from absl import logging
import numpy as np

from experiments.engine import progress, stages
from experiments.knn_lm import prepare as knn_lm_prepare
from experiments.knn_lm.config import Config, KnnLm
from experiments.retro import evaluate as retro_evaluate, rows as rows_lib
from retrieval.index import key_values
from retrieval.store import shards, store
from retrieval.text import chunks as chunks_lib
from retro_jax.data import windows as windows_lib
from retro_jax.evaluation import evaluate as evaluate_lib, knn_lm
from retro_jax.trained import language_model, loading

FILE = 'knn_lm.json'
KIND = 'token-neighbors'
TOKENS_PER_SHARD = 1 << 14
_QUERIES = 4096  # searched in one call
Evaluate = retro_evaluate.Evaluate


def _setting_fields(k, temperature, weight) -> dict[str, float]:
  fields = {'k': k, 'temperature': temperature, 'alpha': 1 / temperature}
  return fields | {'lambda': weight}


@dataclasses.dataclass(frozen=True)
class Swept:
  """Nats of the evaluated documents under every setting."""

  # (k, temperature, lambda) of the grid, then the paper's, which is not tuned
  settings: list[tuple[int, float, float]]
  nats: np.ndarray  # [settings, D]
  alone: evaluate_lib.Evaluation  # of the model
  # k -> share of the tokens that are among their k neighbors' values
  found: dict[int, float]


def look_up(
  trained: loading.TrainedRetro,
  config: Config,
  evaluate: Evaluate,
  folder: pathlib.Path,
  pairs: key_values.KeyValueStore,
  documents: windows_lib.Documents,
) -> store.Store:
  """Find the neighbors of every token, once for all settings; a killed one continues.

  Args:
    trained: the model that made the keys of `pairs`.
    documents: documents of `evaluate.split`.

  Returns:
    The published store. Arrays: nats, targets and document [n] of the tokens
    (document: row in `documents`); distances and values [n, k].
  """
  k, sequence_chunks = max(config.knn_lm.ks), trained.config.sequence_chunks
  stride = evaluate.stride_chunks
  read_k = knn_lm_prepare.num_neighbors(trained, config.knn_lm)
  reader = loading.chunk_reader(
    trained.config, trained.data, evaluate.split, read_k
  )
  index = knn_lm_prepare.open_index(folder, pairs, config.knn_lm)
  fields = {
    'reader': reader.fingerprint,
    'stride_chunks': stride,
    'batch_size': evaluate.batch_size,
    'max_documents': evaluate.max_documents,
    'datastore': pairs.store.fingerprint,  # depends on the model
    'index': index.fingerprint,
    'k': k,
  }
  path = folder / f'found-{store.fingerprint(fields)[:12]}'
  if path.exists():
    return store.Store.open(path, KIND)
  chunks = reader.stores.chunks
  groups = knn_lm.group_documents(
    documents, max(1, TOKENS_PER_SHARD // reader.chunk_length)
  )
  counts = [int(windows_lib.num_targets(chunks, x).sum()) for x in groups]
  search = key_values.KeyValueSearch(pairs, index.searcher)
  with (
    knn_lm_prepare.features(trained, config, evaluate.batch_size) as features,
    progress.bar('look up', 'tokens') as shown,
  ):

    def find(shard: int, update: shards.Progress | None):
      tokens = knn_lm.read_tokens(
        features,
        reader,
        groups[shard],
        sequence_chunks=sequence_chunks,
        stride_chunks=stride,
        batch_size=evaluate.batch_size,
      )
      distances = [np.zeros((0, k), np.float32)]
      values = [np.zeros((0, k), chunks.tokens.tokens.dtype)]
      for low in range(0, counts[shard], _QUERIES):
        found = search.search(tokens.keys[low : low + _QUERIES], k)
        distances.append(found[0])
        values.append(found[1])
        if update:
          update(min(low + _QUERIES, counts[shard]), counts[shard])
      before = sum(len(group.index) for group in groups[:shard])
      return {
        'nats': tokens.nats,
        'targets': tokens.targets,
        'document': tokens.document + before,
        'distances': np.concatenate(distances),
        'values': np.concatenate(values),
      }

    return shards.build_store(path, KIND, fields, counts, find, progress=shown)


def sweep(
  looked_up: store.Store,
  settings: KnnLm,
  chunks: chunks_lib.ChunkStore,
  documents: windows_lib.Documents,
) -> Swept:
  """Weigh the neighbors of every token by every setting."""
  grid = knn_lm.Grid(settings.ks, settings.temperatures, settings.lambdas)
  fixed = max(grid.ks), 1 / settings.fixed.alpha, settings.fixed.weight
  grids, number = (
    (grid, knn_lm.Grid(*((x,) for x in fixed))),
    len(documents.index),
  )
  chosen = [grid.at(i) for i in range(math.prod(grid.shape))] + [fixed]
  nats, alone = np.zeros((len(chosen), number)), np.zeros(number)
  hits, total = dict.fromkeys(grid.ks, 0), 0
  with progress.bar('weigh', 'shards') as update:
    for i in range(looked_up.num_shards):
      names = ('nats', 'targets', 'document', 'distances', 'values')
      arrays = [np.asarray(looked_up.shard(i, name)) for name in names]
      swept = [
        knn_lm.sweep(*arrays, x, number).reshape(-1, number) for x in grids
      ]
      nats += np.concatenate(swept)
      own, targets, document, distances, values = arrays
      alone += np.bincount(document, own.astype(np.float64), number)
      same = np.isfinite(distances) & (values == targets[:, None])
      hits = {k: n + int(same[:, :k].any(1).sum()) for k, n in hits.items()}
      total += len(targets)
      update(i + 1, looked_up.num_shards)
  own = evaluate_lib.of_documents(alone, chunks, documents)
  found = {k: n / max(total, 1) for k, n in hits.items()}
  return Swept(chosen, nats, own, found)


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


def make_rows(swept: Swept, tuned: np.ndarray) -> list[rows_lib.Row]:
  """Rows of the model alone and of the kNN-LM: tuned, per k, and the paper's."""
  cost = swept.nats[:-1, tuned].sum(-1)  # zeros where nothing is tuned
  ks = np.array([k for k, _, _ in swept.settings[:-1]])
  places = {'kNN-LM': int(cost.argmin())}
  for k in dict.fromkeys(ks.tolist()) if len({*ks}) > 1 else ():
    best = np.where(ks == k, cost, np.inf).argmin()
    places[f'kNN-LM, k={k}'] = int(best)
  places["kNN-LM, paper's"] = len(cost)
  alone = swept.alone.take(~tuned)
  rows = [_row('model alone', alone)]
  for name, i in places.items():
    own = dataclasses.replace(alone, nats=swept.nats[i, ~tuned])
    rows.append(_row(name, own, alone, *swept.settings[i]))
  return rows


def _row(name, own, alone=None, *setting) -> rows_lib.Row:
  """Row of the reported documents, with (k, temperature, lambda) of a kNN-LM."""
  cells, fields = ['', '', ''], {}
  if setting:
    k, temperature, weight = setting
    cells = [f'{k}', f'{weight:.3g}', f'{temperature:.3g}']
    fields = _setting_fields(*setting)
  less = alone and evaluate_lib.compare(own, alone)
  return rows_lib.Row(
    name=name,
    evaluation=own,
    minus={'minus_alone': less},
    fields=fields,
    cells=cells,
  )


def _sweep_json(swept: Swept, tuned: np.ndarray) -> list[dict]:
  """Bits per byte under every setting, for both parts of the documents."""
  size, rows = swept.alone.num_bytes, []
  for setting, nats in zip(swept.settings[:-1], swept.nats[:-1], strict=True):
    row = _setting_fields(*setting)
    for name, part in (('tuned_on', tuned), ('reported', ~tuned)):
      if part.any():
        row[name] = float(nats[part].sum() / size[part].sum() / np.log(2))
    rows.append(row)
  return rows


def evaluate(config: Config, workdir: str, evaluate: Evaluate) -> None:
  """Evaluate, print the table and write knn_lm.json."""
  stages.check_alone()
  settings = config.knn_lm
  trained = knn_lm_prepare.load(config, workdir, evaluate.step)
  folder = knn_lm_prepare.folder_of(workdir)
  chunks = trained.data.chunks(evaluate.split)
  documents = windows_lib.find_documents(chunks, evaluate.max_documents)
  tuned = choose_tuned(len(documents.index), settings, config.seed)
  pairs = knn_lm_prepare.open_datastore(folder, trained, settings)
  pairs.check_without(chunks.tokens, documents.index)
  retro = None
  if settings.retro_workdir:  # raises errors before the search
    retro = language_model.load(settings.retro_workdir, str(trained.data.root))
    modes = retro_evaluate.modes_of(retro, evaluate)
    retro_evaluate.open_readers(retro, evaluate, modes)
  looked_up = look_up(trained, config, evaluate, folder, pairs, documents)
  swept = sweep(looked_up, settings, chunks, documents)
  rows = make_rows(swept, tuned)
  if retro is not None:  # on the same documents, in its own windows
    for x in retro_evaluate.evaluate_trained(retro, config, evaluate):
      here = x.evaluation.take(~tuned)
      rows.append(_row(x.name, here, rows[0].evaluation))
  content = {
    'tuned_documents': int(tuned.sum()),
    'tuned_on': [int(i) for i in documents.index[tuned]],
    'target_found': {str(k): share for k, share in swept.found.items()},
    'sweep': _sweep_json(swept, tuned),
    'datastore': {
      'path': str(folder / knn_lm_prepare.DATASTORE),
      'keys': len(pairs),
      'dimension': int(pairs.keys.shape[1]),
      'documents': pairs.num_documents,
      'index': knn_lm_prepare.open_index(folder, pairs, settings).report,
    },
    'step': trained.step,
    'settings': dataclasses.asdict(settings),
    'evaluate': dataclasses.asdict(evaluate),
  }
  path = pathlib.Path(workdir) / FILE
  rows_lib.report(
    path,
    rows,
    title=f'Chosen on {content["tuned_documents"]:,} documents, datastore of '
    f'{len(pairs):,} keys',
    caption='Minus alone: bits per byte less those of the model alone. ',
    heads=('k', 'lambda', 'temp'),
    **content,
  )
  logging.info('The figures are in %s.', path)
