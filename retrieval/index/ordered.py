# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Sources of neighbors that order the candidates of another anew; see `sources`."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from rapidfuzz import process
from rapidfuzz.distance import LCSseq, Levenshtein

from retrieval import tokenization
from retrieval.index import neighbors as neighbors_lib
from retrieval.search import fusion
from retrieval.searchers import base
from retrieval.text import chunks as chunks_lib

_CANDIDATES = fusion.CANDIDATES  # that are ordered anew

Found = neighbors_lib.Found


class _Ordered:
  """Candidates of a source in the order of another score; ties stay in theirs."""

  _NAME = ''

  def __init__(
    self,
    datastore: chunks_lib.ChunkStore,
    candidates: neighbors_lib.Source,
    tokenizer: tokenization.Tokenizer,
  ):
    """Take the source of candidates."""
    self._datastore, self._candidates = datastore, candidates
    self._tokenizer = tokenizer

  def fields(self, queries: chunks_lib.ChunkStore) -> dict[str, Any]:
    """See `neighbors.Source`."""
    found = self._candidates.fields(queries)
    return found | {'source': self._NAME, 'candidates': _CANDIDATES}

  def _order(
    self,
    ids: np.ndarray,
    k: int,
    length: int,
    score: Callable[[int, list[str]], np.ndarray],
  ) -> Found:
    """Order candidates [b, n] by `score` of a row and its candidates' tokens."""
    found, scores = base.nothing(len(ids), k)
    for row, candidates in enumerate(ids):
      candidates = candidates[candidates >= 0]
      if not len(candidates):
        continue
      values = score(row, _strings(*self._datastore.gather(candidates, length)))
      best = np.argsort(-values, kind='stable')[:k]
      found[row, : len(best)] = candidates[best]
      scores[row, : len(best)] = values[best]
    return found, scores


class EditDistance(_Ordered):
  """Candidates by the edit distance of their tokens; the score is its negative."""

  _NAME = 'edit_distance'

  def of_chunks(
    self, queries: chunks_lib.ChunkStore, shard: int, rows: slice, k: int
  ) -> Found:
    """See `neighbors.Source`."""
    n = max(k, _CANDIDATES)
    ids, _ = self._candidates.of_chunks(queries, shard, rows, n)
    tokens = queries.gather(queries.ids(shard, rows), queries.chunk_length)
    return self._nearest(_strings(*tokens), ids, k)

  def of_texts(self, texts: Sequence[str], k: int) -> Found:
    """See `neighbors.Source`."""
    ids, _ = self._candidates.of_texts(texts, max(k, _CANDIDATES))
    asked = [_string(self._tokenizer.encode(text).ids) for text in texts]
    return self._nearest(asked, ids, k)

  def _nearest(self, asked: list[str], ids: np.ndarray, k: int) -> Found:
    def score(row, candidates):
      return -process.cdist(
        [asked[row]], candidates, scorer=Levenshtein.distance, dtype=np.float32
      )[0]

    return self._order(ids, k, self._datastore.chunk_length, score)


class Oracle(_Ordered):
  """Candidates by the tokens that they share with the text that follows a chunk.

  The score is the length of the longest common subsequence of the chunk after the
  query, and the candidate with its continuation.
  """

  _NAME = 'oracle'

  def of_chunks(
    self, queries: chunks_lib.ChunkStore, shard: int, rows: slice, k: int
  ) -> Found:
    """See `neighbors.Source`."""
    n = max(k, _CANDIDATES)
    ids, _ = self._candidates.of_chunks(queries, shard, rows, n)
    following = following_text(queries, queries.ids(shard, rows))

    def score(row, candidates):
      return _shared(following[row], candidates)

    return self._order(ids, k, 2 * queries.chunk_length, score)

  def of_texts(self, texts: Sequence[str], k: int) -> Found:
    """Raise ValueError: nothing follows a new text."""
    raise ValueError(
      'neighbors.source oracle: compares with the text that follows, and nothing '
      'follows a new text; expected another source.'
    )


def following_text(
  queries: chunks_lib.ChunkStore, ids: np.ndarray
) -> list[str]:
  """Return the chunk after each of ids [b], a character for each token."""
  m = queries.chunk_length
  tokens, mask = queries.gather(ids, 2 * m)
  return _strings(tokens[:, m:], mask[:, m:])


def shared_tokens(
  following: Sequence[str], datastore: chunks_lib.ChunkStore, ids: np.ndarray
) -> np.ndarray:
  """Return the score of `Oracle` of neighbors, 0 for none.

  Args:
    following: [b] results of `following_text`.
    ids: [b, k] int64 chunks of the datastore, -1 for none.

  Returns:
    [b, k] float32, in tokens.
  """
  length = 2 * datastore.chunk_length
  return np.array(
    [
      _shared(text, _strings(*datastore.gather(row, length)))
      for text, row in zip(following, ids, strict=True)
    ]
  ).reshape(ids.shape)


def _shared(following: str, candidates: list[str]) -> np.ndarray:
  """Return the lengths of the longest common subsequences."""
  return process.cdist(
    [following], candidates, scorer=LCSseq.similarity, dtype=np.float32
  )[0]


def _strings(tokens: np.ndarray, mask: np.ndarray) -> list[str]:
  return [_string(row[keep]) for row, keep in zip(tokens, mask, strict=True)]


def _string(tokens: np.ndarray) -> str:
  """Return one character for each token, as rapidfuzz compares strings fastest."""
  codes = tokens.astype(np.uint32)
  codes = np.where(codes < 0xD800, codes, codes + 0x800)  # no surrogates
  return codes.astype('<u4').tobytes().decode('utf-32-le')
