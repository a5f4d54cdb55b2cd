# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Search by terms over up to 2^32 texts: the index behind BM25 and TF-IDF.

An inverted index (Zobel and Moffat 2006, sections 3 and 5) as a store, whose shards
hold the terms of consecutive texts:

terms    [T] uint64   hashes of the shard's terms, ascending
ends     [T] int64    past-last posting of each term
rows     [P] uint16   text of each posting within the shard, ascending for a term
counts   [P] uint8    how often the text has the term; wider where it must be
lengths  [n] uint32   terms of each text

Counts are stored, not weights, so that a shard depends on its texts alone. A
search adds up document frequencies over all shards, then scores one shard at a time
and reads the postings of the asked terms only.

Dimension key: n texts of a shard, T its terms, P its postings; b queries, V terms
that they ask for.
"""

import abc
import array
import collections
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import functools
import itertools
import os
from typing import Any, ClassVar

from jaxtyping import Float32, Int64
import numpy as np
from scipy import sparse
from scipy.sparse import _sparsetools
import xxhash

from retrieval import arguments
from retrieval.searchers import base, subset as subset_lib
from retrieval.store import array_store, manifests, shards as shards_lib
from retrieval.text import passages as passages_lib

KIND = 'sparse'
ROWS = 65_536  # texts of a shard
_SCHEMA = 1  # version of the arrays
_ARRAYS = ('terms', 'ends', 'rows', 'counts', 'lengths')
_TOGETHER = 2048  # texts whose terms are in memory as strings
_ASKED_TOGETHER = 1024  # queries
_WEIGHED_TOGETHER = 1 << 14  # postings
_GROUP = 64  # texts that share one maximum
_LAST_ID = 2**32 - 1
_LEAST = np.float32(2**-126)  # of a score that counts
_MAX_OPEN_SHARDS = 1024

Shard = Mapping[str, np.ndarray]


class SparseIndex(abc.ABC):
  """An index from terms to texts; ids are positions of texts.

  Attributes:
    fingerprint: hash of everything that decides its results.
    unit: of the scores.
    num_buckets: of hashed terms; 0 keeps all 64 bits.
    fields: JSON fields that determine the terms of a text.
    settings: JSON fields that determine their weights.
  """

  unit: ClassVar[str]
  num_buckets: ClassVar[int] = 0
  fields: ClassVar[Mapping[str, Any]]
  settings: ClassVar[Mapping[str, Any]] = {}

  def __init__(
    self,
    shard: Callable[[int], Shard],
    counts: Sequence[int],
    made_of: Mapping[str, Any],
  ):
    """Take a function that opens a shard, texts of each shard, and fields."""
    self._shard = shard
    self._offsets = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    self.fingerprint = manifests.fingerprint([made_of, self.settings])

  @staticmethod
  @abc.abstractmethod
  def terms(text: str) -> list[str]:
    """Return the terms of a text, with repetitions."""

  @staticmethod
  @abc.abstractmethod
  def query_weights(
    counts: np.ndarray, frequencies: np.ndarray, num_texts: int
  ) -> np.ndarray:
    """Return weights [p] of a query's terms, 0 or more.

    Args:
      counts: [p] how often the query has each term.
      frequencies: [p] number of texts with the term, at least 1.
    """

  @staticmethod
  @abc.abstractmethod
  def text_weights(
    counts: np.ndarray, lengths: np.ndarray, mean_length: float
  ) -> np.ndarray:
    """Return weights [p] float32 of postings, above 0.

    Args:
      counts: [p] how often a text has a term.
      lengths: [p] number of terms of that text.
    """

  @classmethod
  def joined(cls, parts: Sequence['SparseIndex']) -> 'SparseIndex':
    """Return the index of the texts of several, in turn, as if built of all."""
    sizes = np.concatenate([np.diff(x._offsets) for x in parts]).tolist()
    places = [(x, i) for x in parts for i in range(len(x._offsets) - 1)]
    made_of = {'parts': [x.fingerprint for x in parts]}
    return cls(lambda i: places[i][0]._shard(places[i][1]), sizes, made_of)

  def __len__(self) -> int:
    return int(self._offsets[-1])

  def _shards(self) -> Iterator[Shard]:
    return map(self._shard, range(len(self._offsets) - 1))

  @classmethod
  def build_store(
    cls,
    path: str | os.PathLike,
    passages: passages_lib.Passages,
    *,
    rows: int = ROWS,
    **how,
  ) -> 'SparseIndex':
    """Write an index shard by shard, in the memory of one shard.

    A killed build continues at the first missing shard.

    Args:
      rows: texts of a shard, at most 65,536.
      how: executor and progress of `shards.build_store`.

    Raises:
      ValueError: when `path` holds something else.
    """
    ids = range(len(passages))
    spans = [ids[low : low + rows] for low in ids[::rows]]

    def make(i, progress):
      return _make(cls, passages, spans[i], progress)

    fields = cls.made_of(passages.fingerprint, rows)
    shards_lib.build_store(path, KIND, fields, [*map(len, spans)], make, **how)
    return cls.load(path)

  @classmethod
  def made_of(cls, texts: str, rows: int) -> dict[str, Any]:
    """Return the fields of a store, by the fingerprint of its texts."""
    return {'schema': _SCHEMA, 'texts': texts, 'rows': rows, **cls.fields}

  @classmethod
  def load(cls, path: str | os.PathLike) -> 'SparseIndex':
    """Open a saved index, memory-mapped.

    Raises:
      FileNotFoundError: when `path` holds no index.
      ValueError: when it is damaged, of another version or has other terms.
    """
    stored = array_store.Store.open(path, KIND)
    made = stored.fields
    expected = cls.made_of(made['texts'], made['rows'])
    if made != expected:
      raise ValueError(
        f'{path}: made of other terms ({manifests.difference(expected, made)}); '
        'build it again.'
      )

    @functools.lru_cache(_MAX_OPEN_SHARDS)
    def shard(i: int) -> Shard:
      # Slices of plain arrays are cheaper than those of np.memmap.
      return {x: np.asarray(stored.shard(i, x)) for x in _ARRAYS}

    return cls(shard, stored.rows('lengths'), made)

  @functools.cached_property
  def _mean_length(self) -> float:
    total = sum(x['lengths'].sum(dtype=np.int64) for x in self._shards())
    return int(total) / max(len(self), 1)

  def search(
    self,
    queries: Sequence[str] | np.ndarray,
    k: int,
    subset: subset_lib.Subset | None = None,
  ) -> tuple[Int64[np.ndarray, 'b k'], Float32[np.ndarray, 'b k']]:
    """Find the k best texts of each query; ties go to the lower id.

    Args:
      subset: of the texts to search; None is all. Scores are the same:
        all texts count in the weights of terms.

    Returns:
      ids: [b, k] int64, best first; -1 where fewer have a score above 0.
      scores: [b, k] float32, above 0; -inf there.

    Raises:
      ValueError: for k < 1.
    """
    queries = arguments.texts(queries, 'queries')
    base.check_k(k)
    if subset is not None:
      subset.check(len(self))
    mask = None if subset is None else subset.mask
    ids, scores = base.nothing(len(queries), k)
    for low in range(0, len(queries), _ASKED_TOGETHER):
      some = slice(low, low + _ASKED_TOGETHER)
      self._search(queries[some], ids[some], scores[some], mask)
    return ids, scores

  def _search(self, queries, ids, scores, mask: np.ndarray | None) -> None:
    """Fill empty ids and scores [b, k]."""
    terms, asked = _count(self, queries)
    spans = [_find(shard, terms) for shard in self._shards()]
    frequencies = sum((x[1] - x[0] for x in spans), np.zeros(len(terms), int))
    if not frequencies.any():
      return
    in_texts = frequencies[asked.indices]
    weights = self.query_weights(asked.data, np.maximum(in_texts, 1), len(self))
    asked.data = np.where(in_texts > 0, weights, 0).astype(np.float32)
    keys = np.zeros(ids.shape, np.uint64)
    for shard, (starts, ends), first in zip(
      self._shards(), spans, self._offsets[:-1].tolist(), strict=True
    ):
      if (ends > starts).any():
        subset = mask if mask is None else mask[first:][: len(shard['lengths'])]
        totals = self._score(shard, asked, starts, ends, subset)
        for row, total in enumerate(totals):
          _keep_best(total, first, keys[row])
    there = keys > 0
    ids[there] = _LAST_ID - (keys[there] & _LAST_ID)
    scores[there] = (keys[there] >> 32).astype(np.uint32).view(np.float32)

  def _score(
    self,
    shard: Shard,
    asked: sparse.csr_array,
    starts: np.ndarray,
    ends: np.ndarray,
    subset: np.ndarray | None,
  ) -> Iterator[np.ndarray]:
    """Yield scores [n] of a shard's texts for each query, in the same buffer.

    Texts other than `subset` [n] have 0; None keeps all.
    """
    drops = subset is not None and 2 * subset.sum() < len(subset)
    some = subset if drops else None  # Else zeros in the scores are faster.
    rows, weights, spans = self._postings(shard, starts, ends, some)
    sizes = np.diff(spans).reshape(-1)[asked.indices]
    sizes = np.where(asked.data, sizes, 0).tolist()
    # Lists of views are faster to index than arrays.
    spans, factors = [*spans], [*asked.data[:, None]]
    terms, queries = asked.indices.tolist(), asked.indptr.tolist()
    total = np.zeros(len(shard['lengths']), np.float32)
    for low, high in itertools.pairwise(queries):
      total.fill(0)
      for i in range(low, high):
        if sizes[i]:
          # The loop of csc_array @ vector: half of np.add.at's time.
          span, factor = spans[terms[i]], factors[i]
          _sparsetools.csc_matvec(
            len(total), 1, span, rows, weights, factor, total
          )
      if subset is not None and not drops:
        total *= subset
      yield total

  def _postings(
    self,
    shard: Shard,
    starts: np.ndarray,
    ends: np.ndarray,
    subset: np.ndarray | None,
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows and weights of postings, and the span [V, 2] of each term."""
    rows, counts = shard['rows'], shard['counts']
    sizes = ends - starts
    if 2 * sizes.sum() < len(rows):  # Else all are weighed.
      there = np.flatnonzero(sizes)
      parts = [*map(slice, starts[there].tolist(), ends[there].tolist())]
      rows, counts = (
        np.concatenate([x[i] for i in parts]) for x in (rows, counts)
      )
      starts = np.cumsum(sizes) - sizes
    if subset is not None:
      stay = np.flatnonzero(subset[rows])
      starts, ends = np.searchsorted(stay, [starts, starts + sizes])
      sizes, rows, counts = ends - starts, rows[stay], counts[stay]
    lengths = shard['lengths'].astype(np.float32)
    weights = np.empty(len(rows), np.float32)
    for low in range(0, len(rows), _WEIGHED_TOGETHER):
      some = slice(low, low + _WEIGHED_TOGETHER)
      weights[some] = self.text_weights(
        counts[some], lengths.take(rows[some]), self._mean_length
      )
    spans = np.stack([starts, starts + sizes], axis=1)
    return rows.astype(np.int32), weights, spans.astype(np.int32)


def _make(
  kind: type[SparseIndex],
  passages: passages_lib.Passages,
  span: range,
  progress: shards_lib.Progress | None = None,
) -> Shard:

  def texts():
    for low in range(0, len(span), _TOGETHER):
      ids = np.asarray(span[low : low + _TOGETHER])
      yield from passages.search_texts(ids)
      if progress:
        progress(low + len(ids), len(span))

  terms, counts = _count(kind, texts())
  # Postings of a column of CSC that was CSR ascend.
  by_term = counts.tocsc()
  data, rows = by_term.data, by_term.indices
  return {
    'terms': terms,
    'ends': by_term.indptr[1:].astype(np.int64),
    'rows': rows.astype(np.uint16),
    'counts': data.astype(np.min_scalar_type(data.max(initial=0))),
    'lengths': np.bincount(rows, data, len(span)).astype(np.uint32),
  }


def _count(
  kind: type[SparseIndex] | SparseIndex, texts: Iterable[str]
) -> tuple[np.ndarray, sparse.csr_array]:
  """Return the hashed terms [T] of all texts, ascending, and counts [n, T]."""
  texts, counts = iter(texts), []
  parts = [(np.zeros(0, np.uint64), np.zeros(0, np.int32))]
  while some := list(itertools.islice(texts, _TOGETHER)):
    # Of the terms, by their first occurrence.
    numbers = collections.defaultdict[str, int](itertools.count().__next__)
    flat = array.array('i')
    for text in some:
      terms = kind.terms(text)
      flat.extend(map(numbers.__getitem__, terms))
      counts.append(len(terms))
    hashes = np.fromiter(map(_hash, numbers), np.uint64, len(numbers))
    if kind.num_buckets:
      hashes %= np.uint64(kind.num_buckets)
    parts.append((hashes, np.array(flat, np.int32)))
  terms = np.unique(np.concatenate([hashes for hashes, _ in parts]))
  columns = [np.searchsorted(terms, hashes)[flat] for hashes, flat in parts]
  columns = np.concatenate(columns).astype(np.int32)
  matrix = sparse.csr_array(
    (np.ones(len(columns), np.int32), columns, np.cumsum([0, *counts])),
    shape=(len(counts), len(terms)),
  )
  matrix.sum_duplicates()
  return terms, matrix


def _hash(term: str) -> int:
  return xxhash.xxh3_64_intdigest(term.encode('utf-8', 'surrogatepass'))


def _find(shard: Shard, terms: np.ndarray) -> np.ndarray:
  """Return first and past-last posting of terms [V]: [2, V]; equal for none."""
  known, ends = shard['terms'], shard['ends']
  if not len(known):
    return np.zeros((2, len(terms)), np.int64)
  at = np.minimum(np.searchsorted(known, terms), len(known) - 1)
  starts = np.where(at > 0, ends[at - 1], 0)
  return np.stack([starts, np.where(known[at] == terms, ends[at], starts)])


def _keep_best(total: np.ndarray, first: int, keys: np.ndarray) -> None:
  """Merge scores [n] of texts from `first` on into the best keys [k], best first.

  A key is the 32 bits of a score above the complement of an id, so that a lower id
  wins a tie.
  """
  k, groups = len(keys), len(total) // _GROUP
  least = max((keys[-1:] >> 32).astype(np.uint32).view(np.float32)[0], _LEAST)
  if groups >= k and not keys[-1]:
    # k groups of texts have a maximum of the k-th best score or more.
    tops = total[: groups * _GROUP].reshape(_GROUP, groups).max(axis=0)
    least = max(least, np.partition(tops, groups - k)[groups - k])
  (texts,) = (total >= least).nonzero()
  merged = np.empty(k + len(texts), np.uint64)
  merged[:k] = keys
  merged[k:] = total[texts].view(np.uint32)
  merged[k:] <<= 32
  merged[k:] |= (_LAST_ID - first) - texts.view(np.uint64)
  merged.sort()
  keys[:] = merged[: -k - 1 : -1]
