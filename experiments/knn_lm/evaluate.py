# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Measure perplexity and bits per byte of a kNN-LM beside its model and RETRO.

  python -m experiments.knn_lm.evaluate --config=configs/<name>.py \
    --workdir=DIR --config.knn_lm.model_workdir=RUN \
    --config.knn_lm.retro_workdir=RETRO

Mixes RUN's newest model with the datastore that experiments.knn_lm.build made in
DIR. lambda, temperature and k are tuned on a random share of the held-out documents
(--config.knn_lm.tune_share); every figure is measured on the other documents.
--config.evaluate.split, overlap, stride_chunks and max_documents hold for every
row. Refuses a datastore that holds an evaluated document. Prints a table and writes
DIR/knn_lm.json. A killed search continues when run again.
"""

import dataclasses
import json
import pathlib

from absl import logging
import ml_collections
import numpy as np

from experiments.engine import command, progress, reports, stages
from experiments.knn_lm import (
  lookup as knn_lm_lookup,
  settings as settings_lib,
  task as knn_lm_task,
)
from experiments.retro import evaluate as retro_evaluate
from retrieval.index import key_values
from retrieval.questions import bootstrap
from retrieval.store import sharded_array, store
from retrieval.text import chunks as chunks_lib
from retro_jax.data import windows as windows_lib
from retro_jax.evaluation import evaluate, knn_lm
from retro_jax.trained import language_model, loading

Config = ml_collections.ConfigDict
FILE = 'knn_lm.json'


@dataclasses.dataclass(frozen=True)
class Row:
  """One row of the table."""

  name: str  # name of the model
  evaluation: evaluate.Evaluation  # measurements of the reported documents
  # bits per byte less those of the model alone
  minus_alone: bootstrap.Interval | None = None
  # (k, temperature, lambda) of a kNN-LM, () for other models
  setting: tuple[float, ...] = ()

  def to_json(self) -> dict:
    """The row as JSON values."""
    row = {'name': self.name, **self.evaluation.summary()}
    if self.setting:
      row |= _setting_fields(self.setting)
    if self.minus_alone:
      row['minus_alone'] = dataclasses.asdict(self.minus_alone)
    return row


def _setting_fields(setting) -> dict[str, float]:
  k, temperature, weight = setting
  return {
    'k': k,
    'temperature': temperature,
    'alpha': 1 / temperature,
    'lambda': weight,
  }


@dataclasses.dataclass(frozen=True)
class Swept:
  """Nats of the evaluated documents under every setting."""

  grid: knn_lm.Grid  # the settings that are tuned
  nats: np.ndarray  # [K, T, W, D] nats under the settings of the grid
  fixed: tuple[int, float, float]  # the setting that is not tuned
  fixed_nats: np.ndarray  # [D] nats under the fixed setting
  alone: evaluate.Evaluation  # the model's own evaluation
  # k -> share of the tokens that are among their k neighbors' values
  found: dict[int, float]


def make_grids(settings: Config) -> tuple[knn_lm.Grid, knn_lm.Grid]:
  """Return the settings that are tuned and the fixed setting.

  Raises:
    ValueError: for a weight or an alpha out of range.
  """
  grid = knn_lm.Grid(
    tuple(settings.ks), tuple(settings.temperatures), tuple(settings.lambdas)
  )
  alpha, weight = settings.fixed.alpha, settings.fixed.weight
  if not alpha > 0 or not 0 <= weight < 1:
    raise ValueError(
      f'knn_lm.fixed.alpha={alpha} and weight={weight}: expected an alpha above '
      '0 and 0 <= weight < 1.'
    )
  return grid, knn_lm.Grid((max(grid.ks),), (1 / alpha,), (weight,))


def sweep(
  looked_up: store.Store,
  grids: tuple[knn_lm.Grid, knn_lm.Grid],
  chunks: chunks_lib.ChunkStore,
  documents: windows_lib.Documents,
) -> Swept:
  """Weigh the neighbors of every token by every setting."""
  (grid, fixed), number = grids, len(documents.index)
  nats, alone = np.zeros((*grid.shape, number)), np.zeros(number)
  fixed_nats = np.zeros(number)
  hits, total = dict.fromkeys(grid.ks, 0), 0
  with progress.bar('weigh', 'shards') as update:
    for i in range(looked_up.num_shards):
      names = ('nats', 'targets', 'document', 'distances', 'values')
      arrays = [np.asarray(looked_up.shard(i, name)) for name in names]
      nats += knn_lm.sweep(*arrays, grid, number)
      fixed_nats += knn_lm.sweep(*arrays, fixed, number)[0, 0, 0]
      own, targets, document, distances, values = arrays
      sharded_array.in_range(document, 0, number, looked_up.path)
      alone += np.bincount(document, own.astype(np.float64), number)
      same = np.isfinite(distances) & (values == targets[:, None])
      hits = {k: n + int(same[:, :k].any(1).sum()) for k, n in hits.items()}
      total += len(targets)
      update(i + 1, looked_up.num_shards)
  own = evaluate.Evaluation(
    alone,
    windows_lib.num_targets(chunks, documents),
    chunks.tokens.num_bytes[documents.index],
    chunks.tokens.num_words[documents.index],
  )
  found = {k: n / max(total, 1) for k, n in hits.items()}
  return Swept(grid, nats, fixed.at(0), fixed_nats, own, found)


def choose_tuned(
  number: int, share: float, grid: knn_lm.Grid, seed: int
) -> np.ndarray:
  """Draw the documents for tuning; return [number] bool.

  Args:
    share: share of the documents to tune on.

  Raises:
    ValueError: when no document is left to tune on or to report.
  """
  count = round(share * number)
  tunes = int(np.prod(grid.shape)) > 1
  if not 0 <= count < number or (tunes and not count):
    raise ValueError(
      f'knn_lm.tune_share={share} of {number} documents: expected at least one '
      'to tune on, unless ks, temperatures and lambdas have one value each, and '
      'at least one to report.'
    )
  tuned = np.zeros(number, bool)
  tuned[np.random.default_rng(seed).permutation(number)[:count]] = True
  return tuned


def _only(found: evaluate.Evaluation, chosen: np.ndarray):
  """The evaluation of some of the documents."""
  return evaluate.Evaluation(
    found.nats[chosen],
    found.tokens[chosen],
    found.num_bytes[chosen],
    found.words[chosen],
  )


def make_rows(swept: Swept, tuned: np.ndarray) -> list[Row]:
  """Rows of the model alone and of the kNN-LM: tuned, per k, and the paper's."""
  grid = swept.grid
  cost = swept.nats[..., tuned].sum(-1)  # zeros where nothing is tuned
  flat = swept.nats.reshape(-1, swept.nats.shape[-1])
  alone = _only(swept.alone, ~tuned)

  def row(name, nats, setting):
    found = dataclasses.replace(alone, nats=nats[~tuned])
    return Row(name, found, evaluate.compare(found, alone), setting)

  best = int(cost.argmin())
  rows = [Row('model alone', alone), row('kNN-LM', flat[best], grid.at(best))]
  per_k = cost[0].size
  for i, k in enumerate(grid.ks if len(grid.ks) > 1 else ()):
    place = i * per_k + int(cost[i].argmin())
    rows.append(row(f'kNN-LM, k={k}', flat[place], grid.at(place)))
  rows.append(row("kNN-LM, paper's", swept.fixed_nats, swept.fixed))
  return rows


def _load_retro(
  config: Config, root: pathlib.Path
) -> loading.TrainedRetro | None:
  """Load and check the RETRO that the config names; None without one."""
  directory = config.knn_lm.retro_workdir
  if not directory:
    return None
  retro = language_model.load(directory, str(root))
  retro_evaluate.check(retro, config)
  return retro


def _sweep_json(swept: Swept, tuned: np.ndarray) -> list[dict]:
  """Bits per byte under every setting, for both parts of the documents."""
  flat = swept.nats.reshape(-1, swept.nats.shape[-1])
  size = swept.alone.num_bytes
  return [
    {
      **_setting_fields(swept.grid.at(i)),
      **{
        name: float(nats[part].sum() / size[part].sum() / np.log(2))
        for name, part in (('tuned_on', tuned), ('reported', ~tuned))
        if part.any()
      },
    }
    for i, nats in enumerate(flat)
  ]


def _print(rows: list[Row], content: dict) -> None:
  one = rows[0].evaluation.summary()
  lines = []
  for row in rows:
    k, temperature, weight = row.setting or ('', '', '')
    lines.append(
      (
        row.name,
        str(k),
        f'{weight:.3g}' if row.setting else '',
        f'{temperature:.3g}' if row.setting else '',
        *retro_evaluate.cells(row.evaluation, row.minus_alone),
      )
    )
  columns = 'model,k,lambda,temp,bits/byte,change,interval,token ppl,word ppl'
  reports.print_table(
    columns.split(','),
    lines,
    title=f'{one["documents"]:,} held-out documents, {one["tokens"]:,} tokens; '
    f'settings chosen on {content["tuned_documents"]:,} others; datastore of '
    f'{content["datastore"]["keys"]:,} keys',
    caption='Change: bits per byte less those of the model alone; '
    'interval: 95 % of a paired bootstrap over documents.',
    padding=(0, 1, 0, 0),
  )


def _open_datastore(
  trained: loading.TrainedRetro,
  config: Config,
  folder: knn_lm_task.Folder,
  documents: windows_lib.Documents,
) -> key_values.KeyValueStore:
  """Open the datastore; refuse another model's, or one with the documents."""
  pairs = key_values.KeyValueStore(folder.datastore)
  wanted = knn_lm_task.model_fields(trained, config)
  found = {name: pairs.store.fields[name] for name in wanted}
  if found != wanted:
    raise ValueError(
      f'{pairs.path}: keys made with {found}, but the config names {wanted}; '
      'expected the same model with the same retrieval.'
    )
  tokens = trained.data.chunks(config.evaluate.split).tokens
  pairs.check_without(tokens, documents.index)
  return pairs


def run(config: Config, workdir: str) -> None:
  """Evaluates, prints the table and writes knn_lm.json."""
  stages.check_alone()
  settings = config.knn_lm
  trained = knn_lm_task.load(config, workdir)
  folder = knn_lm_task.Folder.of(workdir)
  chunks = trained.data.chunks(config.evaluate.split)
  documents = windows_lib.find_documents(chunks, config.evaluate.max_documents)
  grids, number = make_grids(settings), len(documents.index)
  tuned = choose_tuned(number, settings.tune_share, grids[0], config.seed)
  pairs = _open_datastore(trained, config, folder, documents)
  retro = _load_retro(config, trained.data.root)  # raises errors early
  looked_up = knn_lm_lookup.look_up(trained, config, folder, pairs, documents)
  swept = sweep(looked_up, grids, chunks, documents)
  rows = make_rows(swept, tuned)
  # RETRO on the same documents, in its own windows.
  for result in retro_evaluate.evaluate_trained(retro, config) if retro else ():
    here = _only(result.evaluation, ~tuned)
    gain = evaluate.compare(here, rows[0].evaluation)
    rows.append(Row(result.name, here, gain))
  content = {
    'rows': [row.to_json() for row in rows],
    'tuned_documents': int(tuned.sum()),
    'tuned_on': [int(i) for i in documents.index[tuned]],
    'target_found': {str(k): share for k, share in swept.found.items()},
    'sweep': _sweep_json(swept, tuned),
    'datastore': {
      'path': str(folder.datastore),
      'keys': len(pairs),
      'dimension': int(pairs.keys.shape[1]),
      'documents': pairs.num_documents,
      'index': folder.open_index(pairs, config).report,
    },
    'step': trained.step,
    'settings': json.loads(settings.to_json()),
    'evaluate': json.loads(config.evaluate.to_json()),
  }
  path = reports.write_json(pathlib.Path(workdir) / FILE, content)
  _print(rows, content)
  logging.info('The figures are in %s.', path)


if __name__ == '__main__':
  command.main(run, settings_lib.Settings, writes=FILE)
