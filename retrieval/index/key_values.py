# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A datastore of pairs (key vector, next token), and looking tokens up in it.

Khandelwal et al. 2020 (kNN-LM), section 2. Whoever makes the keys gives them
shard by shard. The store knows its documents, so that a text that is evaluated
can be shown not to be in it.
"""

from collections.abc import Callable
from collections.abc import Mapping
import hashlib
import os
from typing import Any

import numpy as np

from retrieval import searchers
from retrieval.index import recall_check as index_exam
from retrieval.store import store
from retrieval.text import tokens as tokens_lib

KIND = 'key-values'
ARRAYS = ('keys', 'values', 'documents')


def document_hashes(
  tokens: tokens_lib.TokenStore, index: np.ndarray
) -> np.ndarray:
  """What tells documents apart.

  Args:
    tokens: the token store.
    index: [d] numbers of documents.

  Returns:
    [d, 2] uint64: hash of the id, hash of the tokens.
  """
  texts = [
    hashlib.blake2b(
      np.asarray(tokens.document(int(i)), np.uint32).tobytes(), digest_size=8
    ).digest()
    for i in index
  ]
  text = np.frombuffer(b''.join(texts), np.uint64)
  return np.stack([tokens.id_hash[np.asarray(index)], text], axis=1)


def shared(hashes: np.ndarray, others: np.ndarray) -> np.ndarray:
  """Which documents stand among others, by id or by text: [d] bool."""
  columns = zip(hashes.T, others.T, strict=True)
  return np.any([np.isin(mine, theirs) for mine, theirs in columns], axis=0)


def build_key_value_store(
  path: str | os.PathLike,
  fields: Mapping[str, Any],
  num_shards: int,
  read: Callable[[int], Mapping[str, np.ndarray]],
  *,
  process_index: int = 0,
  process_count: int = 1,
) -> 'KeyValueStore | None':
  """Writes the shards that are missing.

  Args:
    path: where the datastore will stand.
    fields: JSON fields that determine every byte of it.
    num_shards: how many there are.
    read: number of a shard -> its arrays: keys [n, d], values [n], and
      documents [m, 2] from `document_hashes`.
    process_index: number of this process.
    process_count: how many processes share the shards.

  Returns:
    The published store, or None while other processes still have work.
  """
  writer = store.StoreWriter(path, KIND, fields)
  if not writer.published:
    for i in writer.missing(num_shards):
      if i % process_count == process_index:
        arrays = read(i)
        writer.write(i, {name: arrays[name] for name in ARRAYS})
    if writer.missing(num_shards):
      return None
    writer.publish(num_shards)
  return KeyValueStore(path)


class KeyValueStore:
  """Keys and values, memory-mapped.

  Attributes:
    store: the store beneath.
    keys: [n, d] vectors.
    values: [n] tokens.
  """

  def __init__(self, path: str | os.PathLike):
    self.store = store.Store.open(path, KIND)
    self.path = self.store.path
    self.keys = self.store.array('keys')
    self.values = self.store.array('values')

  def __len__(self) -> int:
    return len(self.values)

  @property
  def num_documents(self) -> int:
    """Documents whose tokens are in it."""
    return sum(self.store.rows('documents'))

  def check_without(
    self, tokens: tokens_lib.TokenStore, index: np.ndarray
  ) -> None:
    """Makes sure that documents are not in the datastore.

    Args:
      tokens: a token store.
      index: [d] documents of it that are to be evaluated.

    Raises:
      ValueError: when some are, by id or by text: how many and one of them.
    """
    hashes = document_hashes(tokens, index)
    found = np.zeros(len(index), bool)
    for i in range(self.store.num_shards):
      found |= shared(hashes, self.store.shard(i, 'documents'))
    if found.any():
      example = tokens.document_id(int(index[np.flatnonzero(found)[0]]))
      raise ValueError(
        f'{self.path}: holds {found.sum():,} of the {len(found):,} documents '
        f'that are to be evaluated, one is {example!r}; expected none: build a '
        'datastore without them.'
      )


class KeyValueSearch:
  """Looks keys up; distances are those of the stored keys, exactly."""

  def __init__(self, pairs: KeyValueStore, searcher: searchers.Searcher):
    """Takes a searcher over the keys of a datastore.

    Raises:
      ValueError: when it is over others, or not of squared L2 distances.
    """
    if searcher.metric != 'squared_l2' or searcher.num_vectors != len(pairs):
      raise ValueError(
        f'{pairs.path}: expected an index of its {len(pairs):,} keys with '
        f'metric squared_l2, got one of {searcher.num_vectors:,} with '
        f'{searcher.metric}.'
      )
    self._values, self._searcher = pairs.values, searcher
    self._exact = None  # The searcher's own scores are exact.
    if not isinstance(searcher, searchers.ExactSearcher):
      self._exact = searchers.ExactSearcher(
        pairs.keys, 'squared_l2', check=False
      )

  def search(
    self, queries: np.ndarray, k: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Finds the k nearest keys.

    Args:
      queries: [b, d] float32.
      k: how many.

    Returns:
      distances: [b, k] float32 squared L2, ascending; inf where fewer than k
        exist.
      values: [b, k] tokens; 0 there.
    """
    ids, scores = self._searcher.search(queries, k)
    if self._exact is not None:
      scores = self._exact.score(queries, ids)
      order = np.lexsort((ids, -scores), axis=1)
      ids = np.take_along_axis(ids, order, 1)
      scores = np.take_along_axis(scores, order, 1)
    values = self._values[np.maximum(ids, 0)]
    return -scores.astype(np.float32), np.where(ids >= 0, values, 0)


def recall(
  pairs: KeyValueStore,
  searcher: searchers.Searcher,
  *,
  k: int,
  at: int,
  num_queries: int,
) -> float:
  """How many of the very nearest keys a search for k finds.

  Args:
    pairs: the datastore, rows of which ask, without finding themselves.
    searcher: over its keys.
    k: neighbors that are sought, and scored again exactly.
    at: of the nearest ones that count.
    num_queries: that measure it.

  Returns:
    The share found of the `at` nearest keys; those that tie count alike.
  """
  queries = index_exam.Exam.of_rows(pairs.keys, num_queries, at).queries
  exact = searchers.ExactSearcher(pairs.keys, 'squared_l2', check=False)
  _, best = exact.search(queries, at + 1)
  search = KeyValueSearch(pairs, searcher)
  distances, _ = search.search(queries, max(k, at + 1))
  real = np.isfinite(best[:, 1:])
  found = distances[:, 1 : at + 1] <= -best[:, -1:]
  return float(found[real].mean()) if real.any() else 1.0
