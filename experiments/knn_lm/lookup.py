# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Lookup of every evaluated token in the datastore, once for all settings.

The neighbors go into a store, so that weighing them differently costs little.
"""

import ml_collections
import numpy as np

from experiments.engine import progress
from experiments.knn_lm import task as knn_lm_task
from experiments.retro import evaluate as retro_evaluate
from retrieval.index import key_values
from retrieval.store import shards, store
from retro_jax.data import windows as windows_lib
from retro_jax.evaluation import knn_lm
from retro_jax.trained import loading

KIND = 'token-neighbors'
TOKENS_PER_SHARD = 1 << 14
_QUERIES = 4096  # searched in one call


def look_up(
  trained: loading.TrainedRetro,
  config: ml_collections.ConfigDict,
  folder: knn_lm_task.Folder,
  pairs: key_values.KeyValueStore,
  documents: windows_lib.Documents,
) -> store.Store:
  """Find the neighbors of every token; a killed lookup continues.

  Args:
    trained: the model that made the keys of `pairs`.
    config: `evaluate` and `knn_lm` are read from it.
    documents: documents of `evaluate.split`.

  Returns:
    The published store. Arrays: nats, targets and document [n] of the tokens
    (document: row in `documents`); distances and values [n, k].

  Raises:
    ValueError: when index, datastore and settings do not fit each other.
  """
  settings, k = config.evaluate, max(config.knn_lm.ks)
  sequence_chunks = trained.config.sequence_chunks
  stride = retro_evaluate.stride_chunks(settings, sequence_chunks)
  reader = loading.chunk_reader(
    trained.config,
    trained.data,
    settings.split,
    knn_lm_task.num_neighbors(trained, config),
  )
  index = folder.open_index(pairs, config)
  fields = {
    'reader': reader.fingerprint,
    'stride_chunks': stride,
    'batch_size': settings.batch_size,
    'max_documents': settings.max_documents,
    'datastore': pairs.store.fingerprint,  # depends on the model
    'index': index.fingerprint,
    'k': k,
  }
  path = folder.found(store.fingerprint(fields))
  if path.exists():
    return store.Store.open(path, KIND)
  chunks = reader.stores.chunks
  groups = knn_lm.group_documents(
    documents, max(1, TOKENS_PER_SHARD // reader.chunk_length)
  )
  counts = [int(windows_lib.num_targets(chunks, x).sum()) for x in groups]
  search = key_values.KeyValueSearch(pairs, index.searcher)
  with (
    knn_lm_task.features(trained, config, settings.batch_size) as features,
    progress.bar('look up', 'tokens') as shown,
  ):

    def find(shard: int, update: shards.Progress):
      tokens = knn_lm.read_tokens(
        features,
        reader,
        groups[shard],
        sequence_chunks=sequence_chunks,
        stride_chunks=stride,
        batch_size=settings.batch_size,
      )
      distances = [np.zeros((0, k), np.float32)]
      values = [np.zeros((0, k), chunks.tokens.tokens.dtype)]
      for low in range(0, counts[shard], _QUERIES):
        found = search.search(tokens.keys[low : low + _QUERIES], k)
        distances.append(found[0])
        values.append(found[1])
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
