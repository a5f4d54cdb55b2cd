# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Looks every evaluated token up in the datastore, once for all settings.

A store of what was found: how the neighbors are weighed costs little afterwards.
"""

from collections.abc import Callable
import functools
import pathlib

import ml_collections
import numpy as np

from experiments.engine import progress
from experiments.engine import stages
from experiments.knn_lm import task as knn_lm_task
from experiments.retro import evaluate as retro_evaluate
from retrieval.index import key_values
from retrieval.store import store
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
  """Finds the neighbors of every token; resumes at the first missing shard.

  Args:
    trained: the model that made the keys of `pairs`.
    config: `evaluate`, `knn_lm` and `prepare` are read from it.
    folder: of the kNN-LM.
    pairs: its datastore.
    documents: of `evaluate.split`.

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
  index = folder.open_index(pairs)
  fields = {
    'reader': reader.fingerprint,
    'stride_chunks': stride,
    'batch_size': settings.batch_size,
    'max_documents': settings.max_documents,
    'datastore': pairs.store.fingerprint,  # which says what the model is
    'index': index.fingerprint,
    'k': k,
  }
  path = folder.found(store.fingerprint(fields))
  writer = store.StoreWriter(path, KIND, fields)
  if writer.published:
    return store.Store.open(path, KIND)
  groups = knn_lm.group_documents(
    documents, max(1, TOKENS_PER_SHARD // reader.chunk_length)
  )
  search = key_values.KeyValueSearch(pairs, index.searcher)
  with (
    knn_lm_task.features(trained, config, settings.batch_size) as features,
    progress.bar('look up', 'tokens') as update,
  ):
    read = functools.partial(
      knn_lm.read_tokens,
      features,
      reader,
      sequence_chunks=sequence_chunks,
      stride_chunks=stride,
      batch_size=settings.batch_size,
    )
    find = functools.partial(_find, groups, reader, read, search, k, update)
    return stages.until_whole(
      config, str(path), lambda: _write(writer, len(groups), find, config, path)
    )


def _write(
  writer: store.StoreWriter,
  num_shards: int,
  find: Callable,
  config: ml_collections.ConfigDict,
  path: pathlib.Path,
) -> store.Store | None:
  """Writes this process's share; the store once nothing is missing."""
  share = config.prepare
  for i in writer.missing(num_shards):
    if i % share.process_count == share.process_index:
      writer.write(i, find(i))
  if writer.missing(num_shards):
    return None
  writer.publish(num_shards)
  return store.Store.open(path, KIND)


def _find(groups, reader, read, search, k, update, shard: int):
  """The arrays of one shard."""
  chunks = reader.stores.chunks
  before, total = (
    sum(int(windows_lib.num_targets(chunks, group).sum()) for group in some)
    for some in (groups[:shard], groups)
  )
  tokens = read(documents=groups[shard])
  distances = [np.zeros((0, k), np.float32)]
  values = [np.zeros((0, k), chunks.tokens.tokens.dtype)]
  for low in range(0, len(tokens.targets), _QUERIES):
    found = search.search(tokens.keys[low : low + _QUERIES], k)
    distances.append(found[0])
    values.append(found[1])
    update(before + min(low + _QUERIES, len(tokens.targets)), total)
  return {
    'nats': tokens.nats,
    'targets': tokens.targets,
    'document': tokens.document
    + sum(len(group.index) for group in groups[:shard]),
    'distances': np.concatenate(distances),
    'values': np.concatenate(values),
  }
