# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Re-ranking as a stage on any source: the first candidates in another order.

Nogueira and Cho 2019 (arXiv 1901.04085): a cheap search finds candidates, a
model that reads query and candidate together orders them.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float32, Int
import numpy as np

from retrieval import tokenization
from retrieval.index import neighbors as neighbors_lib
from retrieval.store import store
from retrieval.text import chunks as chunks_lib

_AT_ONCE = 64  # queries whose candidates' texts are held together

# Ids of passages -> their texts.
Texts = Callable[[np.ndarray], list[str]]


@runtime_checkable
class Reranker(Protocol):
  """A model that scores passages for queries.

  Attributes:
    fingerprint: hash of everything that decides the scores.
  """

  fingerprint: str

  def score(
    self, queries: Sequence[str], passages: Sequence[Sequence[str]]
  ) -> list[np.ndarray]:
    """Return [len(passages[i])] float32 for each query; larger is better."""


def rerank(
  reranker: Reranker,
  queries: Sequence[str],
  ids: Int[np.ndarray, 'b n'],
  texts: Texts,
  candidates: int,
) -> tuple[Int[np.ndarray, 'b n'], Float32[np.ndarray, 'b n']]:
  """Order the first candidates of each query; the others stay behind them.

  Args:
    ids: [b, n] passages, best first, -1 for none after all others.
    texts: texts of passages by their ids.
    candidates: number of first passages that are ordered anew.

  Returns:
    order: [b, n] columns of `ids` in the new order; ties stay in the old one.
    scores: [b, n] the re-ranker's, in the new order. A passage that was not
      scored has the one before it less 1; -inf for none.
  """
  order = np.tile(np.arange(ids.shape[1]), (len(ids), 1))
  scores = np.full(ids.shape, -np.inf, np.float32)
  for low in range(0, len(ids), _AT_ONCE):
    here = ids[low : low + _AT_ONCE, :candidates]
    kept = [row[row >= 0] for row in here]
    found = iter(texts(np.concatenate(kept)))
    passages = [[next(found) for _ in row] for row in kept]
    values = reranker.score(queries[low : low + _AT_ONCE], passages)
    for row, new in enumerate(values, start=low):
      best = np.argsort(-new, kind='stable')
      order[row, : len(best)] = best
      rest = (ids[row] >= 0).sum() - len(best)
      tail = new[best[-1:]] - np.arange(1, rest + 1, dtype=np.float32)
      scores[row, : len(best) + rest] = np.concatenate([new[best], tail])
  return order, scores


class Reranked:
  """A source of chunks whose first candidates a re-ranker orders anew.

  A chunk is read with its continuation, since both are what a neighbor is.
  """

  def __init__(
    self,
    inner: neighbors_lib.Source,
    reranker: Reranker,
    datastore: chunks_lib.ChunkStore,
    tokenizer: tokenization.Tokenizer,
    candidates: int,
  ):
    """Take the source of candidates and how many of them are ordered."""
    self._inner, self._reranker = inner, reranker
    self._datastore, self._tokenizer = datastore, tokenizer
    self._candidates = candidates

  def fields(self, queries: chunks_lib.ChunkStore) -> dict[str, Any]:
    """See `neighbors.Source`."""
    found = self._inner.fields(queries)
    made_of = [found, self._reranker.fingerprint, self._candidates]
    return {
      'source': found.get('source', 'dense'),
      'index': store.fingerprint(made_of),
      'reranker': self._reranker.fingerprint,
      'reranked': self._candidates,
    }

  def of_chunks(
    self, queries: chunks_lib.ChunkStore, shard: int, rows: slice, k: int
  ) -> neighbors_lib.Found:
    """See `neighbors.Source`; the inner source excludes the own document."""
    n = max(k, self._candidates)
    ids, _ = self._inner.of_chunks(queries, shard, rows, n)
    asked = queries.texts(queries.ids(shard, rows), self._tokenizer)
    return self._first(asked, ids, k)

  def of_texts(self, texts: Sequence[str], k: int) -> neighbors_lib.Found:
    """See `neighbors.Source`."""
    ids, _ = self._inner.of_texts(texts, max(k, self._candidates))
    return self._first(texts, ids, k)

  def _first(
    self, asked: Sequence[str], ids: np.ndarray, k: int
  ) -> neighbors_lib.Found:
    order, scores = rerank(
      self._reranker, asked, ids, self._texts, self._candidates
    )
    return np.take_along_axis(ids, order, axis=1)[:, :k], scores[:, :k]

  def _texts(self, ids: np.ndarray) -> list[str]:
    return neighbor_texts(self._datastore, self._tokenizer, ids)


def neighbor_texts(
  datastore: chunks_lib.ChunkStore,
  tokenizer: tokenization.Tokenizer,
  ids: np.ndarray,
) -> list[str]:
  """Return the texts of chunks with their continuations."""
  tokens, mask = datastore.gather(ids, 2 * datastore.chunk_length)
  pairs = zip(tokens, mask, strict=True)
  return [tokenizer.decode(row[keep]) for row, keep in pairs]
