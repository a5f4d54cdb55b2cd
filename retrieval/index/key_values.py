# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Datastore of pairs (key vector, next token), and its look-up.

Khandelwal et al. 2020 (kNN-LM), section 2. A shard holds keys [n, d], values [n] and
documents [m, 2] (`document_hashes`), so that an evaluation can make sure that none of
its own documents is among them.
"""

import os

import numpy as np

from retrieval import searchers
from retrieval.searchers import recall_check
from retrieval.store import store
from retrieval.text import tokens as tokens_lib

KIND = 'key-values'


def document_hashes(
  tokens: tokens_lib.TokenStore, index: np.ndarray
) -> np.ndarray:
  """Return [d, 2] uint64 hashes of each document's id and of its tokens."""
  texts = [
    tokens_lib.hash_bytes(tokens.document(int(i)).astype(np.uint32).tobytes())
    for i in index
  ]
  ids = tokens.id_hash[np.asarray(index)]
  return np.stack([ids, np.array(texts, np.uint64)], axis=1)


def shared(hashes: np.ndarray, others: np.ndarray) -> np.ndarray:
  """Return [d] bool: whether a document is among others, by id or by text."""
  columns = zip(hashes.T, others.T, strict=True)
  return np.any([np.isin(mine, theirs) for mine, theirs in columns], axis=0)


class KeyValueStore:
  """Memory-mapped keys and values.

  Attributes:
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
    """The number of documents whose tokens the datastore holds."""
    return sum(self.store.rows('documents'))

  def check_without(
    self, tokens: tokens_lib.TokenStore, index: np.ndarray
  ) -> None:
    """Raise ValueError if the datastore holds one of documents, by id or by text.

    Args:
      index: [d] numbers of the documents in `tokens`.
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
  """Look-up of keys; distances are exact distances to the stored keys."""

  def __init__(self, pairs: KeyValueStore, searcher: searchers.Searcher):
    """Take a searcher over the keys of a datastore.

    Raises:
      ValueError: for a searcher over other keys or of another metric.
    """
    if searcher.metric != 'squared_l2' or searcher.num_vectors != len(pairs):
      raise ValueError(
        f'{pairs.path}: expected an index of its {len(pairs):,} keys with '
        f'metric squared_l2, got one of {searcher.num_vectors:,} with '
        f'{searcher.metric}.'
      )
    self._values, self._searcher = pairs.values, searcher
    self._exact = searchers.exact_of(searcher, pairs.keys)

  def search(
    self, queries: np.ndarray, k: int
  ) -> tuple[np.ndarray, np.ndarray]:
    """Find the k nearest keys of queries [b, d].

    Returns:
      distances: [b, k] float32 squared L2, ascending; inf where fewer than k
        exist.
      values: [b, k] tokens; 0 there.
    """
    ids, scores = self._searcher.search(queries, k)
    if self._exact is not self._searcher:  # whose scores are exact
      ids, scores = self._exact.best_of(queries, ids, k)
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
  """Return the share of the `at` nearest keys that a search for k keys finds.

  Keys with equal distances count alike.

  Args:
    pairs: datastore; some of its keys are the queries and do not find themselves.
    k: number of keys to find, and to score exactly.
  """
  check = recall_check.RecallCheck.of(pairs.keys, None, num_queries, at)
  queries = check.queries
  exact = searchers.ExactSearcher(pairs.keys, 'squared_l2', check=False)
  _, best = exact.search(queries, at + 1)
  search = KeyValueSearch(pairs, searcher)
  distances, _ = search.search(queries, max(k, at + 1))
  real = np.isfinite(best[:, 1:])
  found = distances[:, 1 : at + 1] <= -best[:, -1:]
  return float(found[real].mean()) if real.any() else 1.0
