# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Build the datastore of a kNN-LM and the index of its keys.

  python -m experiments.prepare --config=configs/knn_lm_small.py --workdir=DIR \
    --config.knn_lm.model_workdir=RUN

One pass of RUN's newest model, a RETRO or a baseline, over its training documents
gives a key (the input of the last feed-forward, in float16) and a value (the next
token) for every token. Documents that are also held out, by id or by text, are left
out, and so are those of the evaluation set --config.knn_lm.held_out=NAME, if it
exists. The index is exact search or ScaNN (--config.knn_lm.index.searcher, its
scann.rescore: int8, or none for hashes alone). A killed command continues when run
again. --config.cluster.address=auto lets a Ray cluster make the keys.
--config.prepare.stages=datastore or index runs one stage.

<workdir>/knn_lm/datastore    keys and next tokens of the training documents
<workdir>/knn_lm/index        of the keys
<workdir>/knn_lm/found-<...>  neighbors of each evaluated token
"""

import contextlib
import dataclasses
import functools
import os
import pathlib
from typing import Any

import jax
import numpy as np

from experiments.engine import program as program_lib, progress, stages
from experiments.knn_lm.config import Config, KnnLm
from experiments.retro import evaluate as retro_evaluate
from retrieval import searchers
from retrieval.index import index as index_lib, key_values
from retrieval.nn import trained_encoders
from retrieval.store import executors, shards, store
from retro_jax.data import windows as windows_lib
from retro_jax.evaluation import knn_lm
from retro_jax.trained import language_model, loading

DTYPE = 'float16'
DATASTORE, INDEX = 'datastore', 'index'
Prepare = stages.Prepare


def folder_of(workdir: str | os.PathLike) -> pathlib.Path:
  """The folder of a kNN-LM's stores, `DATASTORE` and `INDEX`, within a workdir."""
  return pathlib.Path(workdir) / 'knn_lm'


def open_datastore(
  folder: pathlib.Path, trained: loading.TrainedRetro, settings: KnnLm
) -> key_values.KeyValueStore:
  """Open the keys and next tokens; ValueError for keys of another model."""
  pairs = key_values.KeyValueStore(folder / DATASTORE)
  wanted = model_fields(trained, settings)
  found = {name: pairs.store.fields[name] for name in wanted}
  if found != wanted:
    raise ValueError(
      f'{pairs.path}: keys made with {found}, but the config names {wanted}; '
      'expected the same model with the same retrieval.'
    )
  return pairs


def open_index(
  folder: pathlib.Path, pairs: key_values.KeyValueStore, settings: KnnLm
) -> index_lib.Index:
  """Open the index of the keys; ValueError for other keys or too low a recall."""
  index = index_lib.open_index(folder / INDEX)
  index_lib.check_vectors(index, pairs.store)
  _check_recall(folder, settings, index.report.get(recall_name(settings), 1.0))
  return index


def _check_recall(folder: pathlib.Path, settings: KnnLm, recall: float) -> None:
  """Raise ValueError for a recall below the config's floor."""
  floor = settings.index.recall_floor
  if recall < floor:
    raise ValueError(
      f'{folder / INDEX}: {recall_name(settings)} is {recall:.4f}, below '
      f'knn_lm.index.recall_floor={floor}; remove the index if it is there, '
      'and raise knn_lm.index.scann.num_leaves_to_search or num_to_rescore, or '
      'set knn_lm.index.searcher=exact.'
    )


def recall_name(settings: KnnLm) -> str:
  """Name the recall after exact scoring in an index's report."""
  return f'recall@{settings.index.recall_at} of {max(settings.ks)} found'


def load(
  config: Config, workdir: str | os.PathLike, step: str = ''
) -> loading.TrainedRetro:
  """Load the model that makes the keys, onto this process's devices."""
  mesh, rules = program_lib.mesh_and_rules(config, jax.local_devices())
  run = config.knn_lm.model_workdir or workdir
  return language_model.load(
    run, config.data_dir, step=step, mesh=mesh, rules=rules
  )


def num_neighbors(trained: loading.TrainedRetro, settings: KnnLm) -> int:
  """RETRO's k while the keys are made; 0 without retrieval."""
  if settings.retrieval and not trained.model.config.cca_layers:
    raise ValueError('knn_lm.retrieval=True: expected a RETRO, no baseline.')
  return settings.num_neighbors if settings.retrieval else 0


def model_fields(
  trained: loading.TrainedRetro, settings: KnnLm
) -> dict[str, Any]:
  """JSON fields that determine the key of a token."""
  fields = dataclasses.asdict(trained.model.config)
  params = trained_encoders.hash_params(trained.params)
  return {
    'model': store.fingerprint([fields, params]),
    'num_neighbors': num_neighbors(trained, settings),
    'sequence_chunks': trained.config.sequence_chunks,
  }


def features(
  trained: loading.TrainedRetro, config: Config, batch_size: int
) -> contextlib.AbstractContextManager[knn_lm.FeatureFn]:
  """Return a context manager that gives the compiled function of a batch.

  Batches are divided by rows over the devices of this process.
  """
  return retro_evaluate.scorer(
    trained,
    config,
    batch_size,
    knn_lm.token_features,
    jax.local_devices(),
    replicate=False,
  )


class _Keys:
  """The documents of a datastore in groups, and the model that makes their keys.

  Attributes:
    counts: chunks of each group.
    fields: what determines the datastore.
    left_out: number of documents that are held out, too.
  """

  def __init__(self, config: Config, workdir: str):
    self._config, settings = config, config.knn_lm
    trained = self._trained = load(config, workdir)
    k = num_neighbors(trained, settings)
    reader = loading.chunk_reader(trained.config, trained.data, 'train', k)
    self._reader, self._tokens = reader, reader.stores.chunks.tokens
    names = dict.fromkeys(('valid', settings.held_out))
    held_out = [
      trained.data.chunks(x) for x in names if x in trained.data.splits
    ]
    train = reader.stores.chunks
    documents = windows_lib.find_documents(train, settings.max_documents)
    hashes = key_values.document_hashes(train.tokens, documents.index)
    leave = np.zeros(len(hashes), bool)
    for chunks in held_out:
      index = windows_lib.find_documents(chunks).index
      theirs = key_values.document_hashes(chunks.tokens, index)
      leave |= key_values.shared(hashes, theirs)
    if leave.all():
      raise ValueError(
        f'{train.path}: all of {len(leave):,} documents are held out, too.'
      )
    self.left_out = int(leave.sum())
    per_shard = max(1, settings.tokens_per_shard // reader.chunk_length)
    kept = documents.take(~leave)
    self._groups = knn_lm.group_documents(kept, per_shard)
    self.counts = [int(group.count.sum()) for group in self._groups]
    self.fields = {
      **model_fields(trained, settings),
      'reader': reader.fingerprint,
      'held_out': ' '.join(chunks.fingerprint for chunks in held_out),
      'stride_chunks': settings.stride_chunks,
      'batch_size': settings.batch_size,
      'max_documents': settings.max_documents,
      'tokens_per_shard': settings.tokens_per_shard,
      'dtype': DTYPE,
    }

  def read(self, shard: int, shown: shards.Progress | None):
    """Return the arrays of one group."""
    settings, group = self._config.knn_lm, self._groups[shard]
    with features(self._trained, self._config, settings.batch_size) as read:
      tokens = knn_lm.read_tokens(
        read,
        self._reader,
        group,
        sequence_chunks=self._trained.config.sequence_chunks,
        stride_chunks=settings.stride_chunks,
        batch_size=settings.batch_size,
        dtype=DTYPE,
        progress=shown,
      )
    return {
      'keys': tokens.keys,
      'values': tokens.targets.astype(self._tokens.tokens.dtype),
      'documents': key_values.document_hashes(self._tokens, group.index),
    }


def _read(keys: _Keys, shard: int, shown: shards.Progress | None):
  return keys.read(shard, shown)


def build_datastore(
  config: Config, workdir: str, folder: pathlib.Path
) -> stages.Rows:
  """Write the datastore."""
  keys = executors.Lazy(_Keys, config, workdir)
  with progress.bar('make keys', 'chunks') as update:
    shards.build_store(
      folder / DATASTORE,
      key_values.KIND,
      keys.fields,
      keys.counts,
      functools.partial(_read, keys),
      executor=stages.executor(config, folder),
      progress=update,
    )
  pairs = key_values.KeyValueStore(folder / DATASTORE)
  return [
    ('keys', f'{len(pairs):,}'),
    ('dimension', str(pairs.keys.shape[1])),
    ('documents', f'{pairs.num_documents:,}'),
    ('left out, held out too', f'{keys.left_out:,}'),
    ('GB of keys', f'{2e-9 * np.prod(pairs.keys.shape, dtype=float):,.3f}'),
  ]


def build_index(
  config: Config, workdir: str, folder: pathlib.Path
) -> stages.Rows:
  """Build, measure and publish the index of the keys."""
  del workdir
  settings, index = config.knn_lm, config.knn_lm.index
  pairs = key_values.KeyValueStore(folder / DATASTORE)

  def measure(searcher: searchers.Searcher) -> dict[str, float]:
    recall = key_values.recall(
      pairs,
      searcher,
      k=max(settings.ks),
      at=index.recall_at,
      num_queries=index.num_queries,
    )
    _check_recall(folder, settings, recall)
    return {recall_name(settings): round(recall, 4)}

  index_lib.build_index(
    folder / INDEX,
    pairs.keys,
    pairs.store.fingerprint,
    # The floor applies to the recall after exact scoring.
    dataclasses.replace(index, recall_floor=0.0),
    accept=measure,
    executor=stages.executor(config, folder),
  )
  found = open_index(folder, pairs, settings)
  return [(name, str(value)) for name, value in found.report.items()]


STAGES = {'datastore': build_datastore, 'index': build_index}


def prepare(config: Config, workdir: str, prepare: Prepare) -> None:
  """Run the chosen stages and print their results."""
  folder = folder_of(workdir)
  stages.run(
    [
      (name, functools.partial(STAGES[name], config, workdir, folder))
      for name in stages.choose(prepare.stages, STAGES)
    ],
    folder,
  )
