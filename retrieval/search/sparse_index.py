# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Search by terms over any number of texts: the index behind BM25 and TF-IDF.

An inverted index (Zobel and Moffat 2006, sections 3 and 5) as a store, whose shards
hold the terms of consecutive texts:

terms    [T] uint64   hashes of the shard's terms, ascending
ends     [T] int64    past-last posting of each term
rows     [P] uint16   text of each posting within the shard, ascending for a term
counts   [P] uint8    how often the text has the term; wider where it must be
lengths  [n] uint32   terms of each text

Counts are stored, not weights, so that a shard depends on its own texts alone. A
search adds up document frequencies over all shards, then scores one shard at a time
and reads the postings of the asked terms only.

Dimension key: n texts of a shard, T its terms, P its postings; b queries, V terms
that they ask for.
"""

import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import dataclasses
import functools
import itertools
import os
from typing import Any, ClassVar, Protocol, runtime_checkable

from jaxtyping import Float32, Int64
import numpy as np
from scipy import sparse
import xxhash

from retrieval import arguments
from retrieval.searchers import base
from retrieval.store import manifests, shards as shards_lib, store
from retrieval.text import passages as passages_lib

KIND = 'sparse'
ROWS = 32_768  # texts of a shard
_SCHEMA = 1  # version of the arrays
_ARRAYS = ('terms', 'ends', 'rows', 'counts', 'lengths')
_TOGETHER = 2048  # texts whose terms are in memory as strings
_ASKED_TOGETHER = 1024  # queries
_MAX_OPEN_SHARDS = 1024

Shard = Mapping[str, np.ndarray]


@runtime_checkable
class Scheme(Protocol):
  """The terms of a text, and their weights; a frozen dataclass."""

  num_buckets: ClassVar[int]  # of hashed terms; 0 keeps all 64 bits

  def fields(self) -> dict[str, Any]:
    """Return JSON fields that determine the terms of a text."""

  def terms(self, text: str) -> list[str]:
    """Return the terms of a text, with repetitions."""

  def query_weights(
    self, counts: np.ndarray, frequencies: np.ndarray, num_texts: int
  ) -> np.ndarray:
    """Return weights [p] of a query's terms, 0 or more.

    Args:
      counts: [p] how often the query has each term.
      frequencies: [p] number of texts with the term, at least 1.
    """

  def text_weights(
    self, counts: np.ndarray, lengths: np.ndarray, mean_length: float
  ) -> np.ndarray:
    """Return weights [p] float32 of postings, above 0.

    Args:
      counts: [p] how often a text has a term.
      lengths: [p] number of terms of that text.
    """


class SparseIndex:
  """An index from terms to texts; ids are positions of texts.

  Attributes:
    config: terms and weights.
    fingerprint: hash of everything that decides its results.
  """

  CONFIG: ClassVar[Callable[[], Scheme]]
  unit: ClassVar[str]  # of the scores

  def __init__(
    self,
    config: Scheme,
    shard: Callable[[int], Shard],
    counts: Sequence[int],
    fields: dict[str, Any],
  ):
    """Take what opens a shard, the texts of each shard, and fields of the store."""
    self.config, self._shard = config, shard
    self._offsets = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    self.fingerprint = store.fingerprint([fields, dataclasses.asdict(config)])

  def __len__(self) -> int:
    return int(self._offsets[-1])

  def _shards(self) -> Iterator[Shard]:
    return map(self._shard, range(len(self._offsets) - 1))

  @classmethod
  def build(
    cls,
    texts: Iterable[str],
    titles: Iterable[str] | None = None,
    config: Scheme | None = None,
  ) -> 'SparseIndex':
    """Build an index of texts [N] in memory, below titles [N] if there are any.

    Raises:
      ValueError: for other than N titles.
    """
    config = config or cls.CONFIG()
    passages = passages_lib.TextList(texts, titles)
    spans = _spans(len(passages), ROWS)
    shards = [_make(config, passages, span) for span in spans]
    fields = _fields(config, passages.fingerprint, ROWS)
    return cls(config, shards.__getitem__, [*map(len, spans)], fields)

  @classmethod
  def build_store(
    cls,
    path: str | os.PathLike,
    passages: passages_lib.Passages,
    config: Scheme | None = None,
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
    config = config or cls.CONFIG()
    spans = _spans(len(passages), rows)

    def make(i, progress):
      return _make(config, passages, spans[i], progress)

    fields = _fields(config, passages.fingerprint, rows)
    shards_lib.build_store(path, KIND, fields, [*map(len, spans)], make, **how)
    return cls.load(path, config)

  @classmethod
  def load(
    cls, path: str | os.PathLike, config: Scheme | None = None
  ) -> 'SparseIndex':
    """Open a saved index, memory-mapped.

    Raises:
      FileNotFoundError: when `path` holds no index.
      ValueError: when it is damaged, of another version or has other terms.
    """
    config = config or cls.CONFIG()
    found = store.Store.open(path, KIND)
    made = found.fields
    wanted = _fields(config, made['texts'], made['rows'])
    if made != wanted:
      raise ValueError(
        f'{path}: made of other terms ({manifests.difference(wanted, made)}); '
        'build it again.'
      )

    @functools.lru_cache(_MAX_OPEN_SHARDS)
    def shard(i: int) -> Shard:
      # Slices of plain arrays are cheaper than those of np.memmap.
      return {x: np.asarray(found.shard(i, x)) for x in _ARRAYS}

    return cls(config, shard, found.rows('lengths'), made)

  @functools.cached_property
  def _mean_length(self) -> float:
    total = sum(x['lengths'].sum(dtype=np.int64) for x in self._shards())
    return int(total) / max(len(self), 1)

  def search(
    self, queries: Sequence[str] | np.ndarray, k: int
  ) -> tuple[Int64[np.ndarray, 'b k'], Float32[np.ndarray, 'b k']]:
    """Find the k best texts of each query; ties go to the lower id.

    Returns:
      ids: [b, k] int64, best first; -1 where fewer have a score above 0.
      scores: [b, k] float32, above 0; -inf there.

    Raises:
      ValueError: for k < 1.
    """
    queries = arguments.texts(queries, 'queries')
    base.check_k(k)
    ids, scores = base.nothing(len(queries), k)
    for low in range(0, len(queries), _ASKED_TOGETHER):
      some = slice(low, low + _ASKED_TOGETHER)
      self._search(queries[some], ids[some], scores[some])
    return ids, scores

  def _search(self, queries, ids: np.ndarray, scores: np.ndarray) -> None:
    """Fill ids and scores [b, k], which hold nothing."""
    terms, asked = _count(self.config, queries)
    spans = [_find(shard, terms) for shard in self._shards()]
    frequencies = sum((x[1] - x[0] for x in spans), np.zeros(len(terms), int))
    if not frequencies.any():
      return
    found = frequencies[asked.indices]
    weights = self.config.query_weights(
      asked.data, np.maximum(found, 1), len(self)
    )
    asked.data = np.where(found > 0, weights, 0).astype(np.float32)
    for shard, (starts, ends), first in zip(
      self._shards(), spans, self._offsets[:-1].tolist(), strict=True
    ):
      if (ends > starts).any():
        found = self._score(shard, asked, starts, ends)
        for row, total in enumerate(found):
          _keep_best(total, first, ids[row], scores[row])

  def _score(
    self,
    shard: Shard,
    asked: sparse.csr_array,
    starts: np.ndarray,
    ends: np.ndarray,
  ) -> Iterator[np.ndarray]:
    """Yield scores [n] of a shard's texts for each query, in the same buffer."""
    rows, weights = self._postings(shard, starts, ends)
    bounds = np.concatenate([[0], np.cumsum(ends - starts)]).tolist()
    terms, factors, queries = asked.indices.tolist(), asked.data, asked.indptr
    total = np.zeros(len(shard['lengths']), np.float32)
    for low, high in itertools.pairwise(queries.tolist()):
      total.fill(0)
      for i in range(low, high):
        some = slice(bounds[terms[i]], bounds[terms[i] + 1])
        if some.start < some.stop and factors[i]:
          np.add.at(total, rows[some], weights[some] * factors[i])
      yield total

  def _postings(
    self, shard: Shard, starts: np.ndarray, ends: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and weights of the postings of the asked terms, in a row."""
    there = np.flatnonzero(ends > starts)
    spans = list(zip(starts[there].tolist(), ends[there].tolist(), strict=True))
    rows, counts = (
      np.concatenate([shard[name][a:b] for a, b in spans])
      for name in ('rows', 'counts')
    )
    weights = self.config.text_weights(
      counts, shard['lengths'][rows], self._mean_length
    )
    return rows.astype(np.intp), weights


def _fields(config: Scheme, texts: str, rows: int) -> dict[str, Any]:
  return {'schema': _SCHEMA, 'texts': texts, 'rows': rows, **config.fields()}


def _spans(num_rows: int, size: int) -> list[range]:
  lows = range(0, num_rows, size)
  return [range(low, min(low + size, num_rows)) for low in lows]


def _make(
  config: Scheme,
  passages: passages_lib.Passages,
  span: range,
  progress: shards_lib.Progress | None = None,
) -> Shard:
  """Return the arrays of a shard of passages."""

  def texts():
    for low in range(0, len(span), _TOGETHER):
      ids = np.asarray(span[low : low + _TOGETHER])
      yield from passages.search_texts(ids)
      if progress:
        progress(low + len(ids), len(span))

  terms, counts = _count(config, texts())
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
  config: Scheme, texts: Iterable[str]
) -> tuple[np.ndarray, sparse.csr_array]:
  """Return the hashed terms [T] of all texts, ascending, and counts [n, T]."""
  texts, counts = iter(texts), []
  parts = [(np.zeros(0, np.uint64), np.zeros(0, np.int32))]
  while some := list(itertools.islice(texts, _TOGETHER)):
    numbers: dict[str, int] = {}  # of the terms, by their first occurrence
    flat = array.array('i')
    for text in some:
      terms = config.terms(text)
      flat.extend([numbers.setdefault(term, len(numbers)) for term in terms])
      counts.append(len(terms))
    hashes = np.fromiter(map(_hash, numbers), np.uint64, len(numbers))
    if config.num_buckets:
      hashes %= np.uint64(config.num_buckets)
    parts.append((hashes, np.array(flat, np.int32)))
  terms = np.unique(np.concatenate([hashes for hashes, _ in parts]))
  columns = [np.searchsorted(terms, hashes)[flat] for hashes, flat in parts]
  columns = np.concatenate(columns).astype(np.int32)
  found = sparse.csr_array(
    (np.ones(len(columns), np.int32), columns, np.cumsum([0, *counts])),
    shape=(len(counts), len(terms)),
  )
  found.sum_duplicates()
  return terms, found


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


def _keep_best(
  total: np.ndarray, first: int, ids: np.ndarray, scores: np.ndarray
) -> None:
  """Merge scores [n] of texts from `first` on into the best [k] so far."""
  k = len(ids)
  (new,) = np.nonzero(total > max(scores[-1], 0))  # A later text loses a tie.
  if not len(new):
    return
  value = total[new]
  if len(new) > k:
    (kept,) = np.nonzero(value >= np.partition(value, -k)[-k])
    new, value = new[kept], value[kept]
  there = ids >= 0
  new = np.concatenate([ids[there], new + first])
  value = np.concatenate([scores[there], value])
  best = np.argsort(-value, kind='stable')[:k]  # Ids of equal values ascend.
  ids[: len(best)], scores[: len(best)] = new[best], value[best]
