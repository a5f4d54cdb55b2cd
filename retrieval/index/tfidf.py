# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""DrQA's TF-IDF over the texts of blocks: hashed words and pairs of words.

Chen et al. 2017, section 3.1. A term is a word or two adjacent words, neither of them
a stop word, hashed into 2^24 buckets. Its weight in a text is ln(1 + tf) * idf, idf =
ln((N - n + .5) / (n + .5)), 0 for a term of more than half of the blocks; the score
is the inner product of question and block. Terms are hashed by XXH3, DrQA's by
MurmurHash3, so that other terms share a bucket.

Dimension key: N blocks, T buckets in use, P pairs of bucket and block.
"""

from collections.abc import Iterable, Mapping, Sequence
import hashlib
import os

from jaxtyping import Float32, Int64
import numpy as np
import xxhash

from retrieval.index import bm25
from retrieval.searchers import base
from retrieval.store import sharded_array, shards, store

KIND = 'tfidf'
NUM_BUCKETS = 2**24
_SCHEMA = 1  # version of the way from text to buckets
_ARRAYS = ('buckets', 'starts', 'blocks', 'weights')
_STOP_WORDS = frozenset(bm25.STOP_WORDS)


class TfIdf:
  """An index from hashed terms to blocks.

  Attributes:
    num_blocks: number of blocks, blocks without terms included.
    fingerprint: hash of everything that decides its results.
  """

  def __init__(
    self, arrays: Mapping[str, np.ndarray], num_blocks: int, texts_hash: str
  ):
    """Take the parts of an index from `build` or `load`.

    Args:
      arrays: buckets [T] int32 ascending; starts [T + 1] int64, the first pair of
        each; blocks [P] int32, ascending for each bucket; weights [P] float32.
      num_blocks: N.
    """
    self.num_blocks = num_blocks
    self._arrays = arrays
    self._fields = {
      'terms': _SCHEMA,
      'stop_words': sorted(_STOP_WORDS),
      'texts': texts_hash,
    }
    self.fingerprint = store.fingerprint([KIND, self._fields])

  @classmethod
  def build(
    cls, texts: Iterable[str], titles: Iterable[str] | None = None
  ) -> 'TfIdf':
    """Build an index in memory; block ids are positions in `texts`.

    Args:
      texts: [N] texts of the blocks, read once.
      titles: [N] titles, prepended to the texts; None for none.

    Raises:
      ValueError: for other than N titles.
    """
    hashed, rows = hashlib.sha256(), []
    for text in texts if titles is None else bm25.titled(titles, texts):
      data = text.encode('utf-8', 'surrogatepass')
      hashed.update(len(data).to_bytes(8, 'little') + data)
      rows.append(_buckets(text))
    lengths = [len(row) for row in rows]
    terms = np.concatenate(rows) if rows else np.zeros(0, np.int64)
    keys = terms * len(rows) + np.repeat(np.arange(len(rows)), lengths)
    pairs, counts = np.unique(keys, return_counts=True)
    terms, blocks = np.divmod(pairs, max(len(rows), 1))
    buckets, starts = np.unique(terms, return_index=True)
    starts = np.append(starts, len(terms)).astype(np.int64)
    weights = np.log1p(counts) * np.repeat(
      _idf(np.diff(starts), len(rows)), np.diff(starts)
    )
    arrays = {
      'buckets': buckets.astype(np.int32),
      'starts': starts,
      'blocks': blocks.astype(np.int32),
      'weights': weights.astype(np.float32),
    }
    return cls(arrays, len(rows), hashed.hexdigest()[:32])

  def search(
    self, queries: Sequence[str] | np.ndarray, k: int
  ) -> tuple[Int64[np.ndarray, 'b k'], Float32[np.ndarray, 'b k']]:
    """Find the k best blocks of each query; ties go to the lower id.

    Returns:
      ids: [b, k] int64, best first; -1 where fewer have a score above 0.
      scores: [b, k] float32, above 0; -inf there.

    Raises:
      ValueError: for k < 1.
    """
    if k < 1:
      raise ValueError(f'k={k}: expected at least 1.')
    ids, scores = base.nothing(len(queries), k)
    for row, query in enumerate(queries):
      found = self._score(query)
      (blocks,) = np.nonzero(found)
      first = blocks[bm25.best(found[blocks], k)]
      ids[row, : len(first)] = first
      scores[row, : len(first)] = found[first]
    return ids, scores

  def _score(self, query: str) -> np.ndarray:
    """Return scores [N] float32 of all blocks."""
    known, starts, blocks, weights = (self._arrays[name] for name in _ARRAYS)
    scores = np.zeros(self.num_blocks, np.float32)
    terms, counts = np.unique(_buckets(query), return_counts=True)
    for term, count in zip(terms, counts, strict=True):
      i = int(np.searchsorted(known, term))
      if i == len(known) or known[i] != term:
        continue
      theirs = blocks[starts[i] : starts[i + 1]]
      file = getattr(blocks, 'filename', 'TF-IDF')
      sharded_array.in_range(theirs, 0, self.num_blocks, file)
      own = np.log1p(count) * _idf(len(theirs), self.num_blocks)
      scores[theirs] += np.float32(own) * weights[starts[i] : starts[i + 1]]
    return scores

  def save(self, path: str | os.PathLike) -> None:
    """Write the index as a store, unless `path` holds the same index.

    Raises:
      ValueError: when `path` holds something else.
    """
    meta, arrays = {'num_blocks': self.num_blocks}, dict(self._arrays)
    shards.build_store(
      path, KIND, self._fields, [0], lambda *_: arrays, meta=meta
    )

  @classmethod
  def load(cls, path: str | os.PathLike) -> 'TfIdf':
    """Load a saved index, memory-mapped.

    Raises:
      ValueError: when it is damaged or of another version.
    """
    found = store.Store.open(path, KIND)
    if found.fields.get('terms') != _SCHEMA:
      raise ValueError(f'{path}: made by another version; build it again.')
    arrays = {name: found.shard(0, name) for name in _ARRAYS}
    starts = arrays['starts']
    same = len(arrays['blocks']) == len(arrays['weights']) == starts[-1]
    if not same or len(starts) != len(arrays['buckets']) + 1:
      raise ValueError(
        f'{path}: damaged, its arrays do not fit; build it again.'
      )
    return cls(arrays, found.meta['num_blocks'], found.fields['texts'])


def _idf(count: int | np.ndarray, num_blocks: int) -> np.floating | np.ndarray:
  """Return the weights of terms that `count` of the blocks have, at least 0."""
  return np.maximum(np.log((num_blocks - count + 0.5) / (count + 0.5)), 0)


def _buckets(text: str) -> Int64[np.ndarray, ' n']:
  """Return the bucket of each word and of each pair of adjacent words."""
  words = bm25.words_of(text)
  kept = [word not in _STOP_WORDS for word in words]
  terms = [word for word, keep in zip(words, kept, strict=True) if keep]
  terms += [
    f'{words[i]} {words[i + 1]}'
    for i in range(len(words) - 1)
    if kept[i] and kept[i + 1]
  ]
  hashes = [xxhash.xxh3_64_intdigest(x.encode()) % NUM_BUCKETS for x in terms]
  return np.array(hashes, np.int64)
