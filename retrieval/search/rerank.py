# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Re-ranking of any retriever: its first candidates in another order.

Nogueira and Cho 2019 (arXiv 1901.04085): a cheap search finds candidates, a
model that reads query and candidate together orders them.
"""

from collections.abc import Sequence
import os
from typing import Protocol, runtime_checkable

from jaxtyping import Float32, Int
import numpy as np
from rapidfuzz import process
from rapidfuzz.distance import LCSseq

from retrieval.nn import colbert, colbert_folder, cross_encoder
from retrieval.search import queries as queries_lib, retriever as retriever_lib
from retrieval.searchers import base
from retrieval.store import manifests
from retrieval.text import chunks as chunks_lib, passages as passages_lib

_AT_ONCE = 64  # queries whose candidates' texts are held together
Queries = queries_lib.Queries


@runtime_checkable
class TextScorer(Protocol):
  """A model that scores texts for texts."""

  fingerprint: str  # hash of everything that decides the scores
  unit: str  # of the scores, as of `retriever.Retriever`

  def score(
    self, queries: Sequence[str], passages: Sequence[Sequence[str]]
  ) -> list[np.ndarray]:
    """Return [len(passages[i])] float32 for each query; larger is better."""


@runtime_checkable
class Reranker(Protocol):
  """Scores passages for queries; the attributes are as of `TextScorer`."""

  fingerprint: str
  unit: str

  def score(
    self, queries: Queries, ids: Sequence[np.ndarray]
  ) -> list[np.ndarray]:
    """Return [len(ids[i])] float32 for each query; larger is better."""


class ByTexts:
  """Scores the full texts of passages."""

  def __init__(self, model: TextScorer, passages: passages_lib.Passages):
    self._model, self._passages = model, passages
    self.fingerprint, self.unit = model.fingerprint, model.unit

  def score(self, queries, ids) -> list[np.ndarray]:
    """See `Reranker`."""
    full_texts = iter(self._passages.full_texts(np.concatenate(ids)))
    texts = [[next(full_texts) for _ in row] for row in ids]
    return self._model.score(queries.texts, texts)


class Oracle:
  """Scores by the tokens shared with the chunk that follows the query.

  The score is the length of the longest common subsequence of that chunk, and the
  candidate with its continuation.
  """

  fingerprint, unit = 'oracle', 'shared tokens'

  def __init__(self, chunks: chunks_lib.ChunkStore):
    self._chunks = chunks

  def score(self, queries, ids) -> list[np.ndarray]:
    """See `Reranker`; 0 for id -1."""
    return [
      _shared(text, self._chunks.token_rows(row, limit=2))
      for text, row in zip(queries.following_rows(), ids, strict=True)
    ]


def _shared(asked: np.ndarray, rows: Sequence[np.ndarray]):
  """Return scores [n] float32 of passages by their tokens and a query's."""
  rows = [_string(row) for row in rows]
  return process.cdist(
    [_string(asked)], rows, scorer=LCSseq.similarity, dtype=np.float32
  ).reshape(-1)


def _string(tokens: np.ndarray) -> str:
  """Return one character for each token, as rapidfuzz compares strings fastest."""
  codes = np.asarray(tokens).astype(np.uint32)
  codes = np.where(codes < 0xD800, codes, codes + 0x800)  # no surrogates
  return codes.astype('<u4').tobytes().decode('utf-32-le')


class Reranked:
  """A retriever whose first candidates a re-ranker orders anew.

  Attributes:
    inner: retriever of the candidates.
    candidates: number of first passages that are ordered; the others stay behind.
  """

  def __init__(
    self, inner: retriever_lib.Retriever, reranker: Reranker, candidates: int
  ):
    self.inner, self.candidates, self._reranker = inner, candidates, reranker
    self.unit = reranker.unit
    self.fingerprint = manifests.fingerprint(
      [inner.fingerprint, reranker.fingerprint, candidates]
    )

  def search(self, queries: Queries | Sequence[str], k: int) -> base.Hits:
    """See `retriever.Retriever`; the scores are the re-ranker's."""
    queries = queries_lib.checked(queries, k)
    ids, _ = self.inner.search(queries, max(k, self.candidates))
    order, scores = self.order(queries, ids)
    return np.take_along_axis(ids, order, axis=1)[:, :k], scores[:, :k]

  def order(
    self, queries: Queries, ids: Int[np.ndarray, 'b n']
  ) -> tuple[Int[np.ndarray, 'b n'], Float32[np.ndarray, 'b n']]:
    """Order the first candidates of each query.

    Args:
      ids: [b, n] passages, best first, -1 for none after all others.

    Returns:
      order: [b, n] columns of `ids` in the new order; ties stay in the old one.
      scores: [b, n] the re-ranker's, in the new order. A passage that was not
        scored has the one before it less 1; -inf for none.
    """
    order = np.tile(np.arange(ids.shape[1]), (len(ids), 1))
    scores = np.full(ids.shape, -np.inf, np.float32)
    for low in range(0, len(ids), _AT_ONCE):
      here = ids[low : low + _AT_ONCE, : self.candidates]
      values = self._reranker.score(
        queries.take(range(low, low + len(here))),
        [row[row >= 0] for row in here],
      )
      for row, new in enumerate(values, start=low):
        best = np.argsort(-new, kind='stable')
        order[row, : len(best)] = best
        rest = (ids[row] >= 0).sum() - len(best)
        tail = new[best[-1:]] - np.arange(1, rest + 1, dtype=np.float32)
        scores[row, : len(best) + rest] = np.concatenate([new[best], tail])
    return order, scores


def load(path: str | os.PathLike) -> TextScorer:
  """Load a folder, or a name on the Hub, of a ColBERT or of a cross-encoder.

  Raises:
    FileNotFoundError: if a file is missing.
    ValueError: if a file is damaged, or of another kind of model.
  """
  if colbert_folder.is_model(path):
    return colbert.load(path)
  return cross_encoder.load(path)
