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
hashes   [n] uint64   hash of each text

Counts are stored, not weights, so that a shard depends on its own texts alone. A
search adds up document frequencies over all shards, then scores one shard at a time
and reads the postings of the asked terms only.

Dimension key: n texts of a shard, T its terms, P its postings; b queries, V terms
that they ask for.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
import dataclasses
import functools
import itertools
import os
from typing import Any, ClassVar

from jaxtyping import Float32, Int64
import numpy as np
from scipy import sparse

from retrieval.search import term_counts
from retrieval.searchers import base
from retrieval.store import manifests, shards as shards_lib, store
from retrieval.text import passages as passages_lib

KIND = 'sparse'
ROWS = 32_768  # texts of a shard
_SCHEMA = 1  # version of the arrays and of the hashes
_ARRAYS = ('terms', 'ends', 'rows', 'counts', 'lengths', 'hashes')
_READ_TOGETHER = 2048  # texts
_ASKED_TOGETHER = 1024  # queries
_MAX_OPEN_SHARDS = 1024


class SparseIndex:
  """An index from terms to texts; ids are positions of texts.

  Attributes:
    config: terms and weights.
    fingerprint: hash of everything that decides its results.
  """

  CONFIG: ClassVar[Callable[[], term_counts.Scheme]]

  def __init__(
    self,
    config: term_counts.Scheme,
    shard: Callable[[int], term_counts.Shard],
    counts: Sequence[int],
    fields: dict[str, Any],
  ):
    """Take what opens a shard, the texts of each shard, and fields of the store."""
    self.config, self._shard = config, shard
    self._offsets = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    self.fingerprint = store.fingerprint([fields, dataclasses.asdict(config)])

  def __len__(self) -> int:
    return int(self._offsets[-1])

  def _shards(self) -> Iterator[term_counts.Shard]:
    return map(self._shard, range(len(self._offsets) - 1))

  @classmethod
  def build(
    cls,
    texts: Iterable[str],
    titles: Iterable[str] | None = None,
    config: term_counts.Scheme | None = None,
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
    config: term_counts.Scheme | None = None,
    *,
    known: term_counts.Known | None = None,
    rows: int = ROWS,
    **how,
  ) -> 'SparseIndex':
    """Write an index shard by shard, in the memory of one shard.

    A killed build continues at the first missing shard.

    Args:
      known: counts of texts of an earlier index with the same terms, such as
        `reuse.ReusedTerms`.
      rows: texts of a shard, at most 65,536.
      how: executor and progress of `shards.build_store`.

    Raises:
      ValueError: when `path` holds something else.
    """
    config = config or cls.CONFIG()
    spans = _spans(len(passages), rows)

    def make(i, progress):
      return _make(config, passages, spans[i], known, progress)

    fields = _fields(config, passages.fingerprint, rows)
    shards_lib.build_store(path, KIND, fields, [*map(len, spans)], make, **how)
    return cls.load(path, config)

  @classmethod
  def load(
    cls, path: str | os.PathLike, config: term_counts.Scheme | None = None
  ) -> 'SparseIndex':
    """Open a saved index, memory-mapped.

    Raises:
      FileNotFoundError: when `path` holds no index.
      ValueError: when it is damaged, of another version or has other terms.
    """
    config = config or cls.CONFIG()
    found = store.Store.open(path, KIND)
    made = found.fields
    wanted = _fields(config, made.get('texts', ''), made.get('rows', 0))
    if made != wanted:
      raise ValueError(
        f'{path}: made of other terms ({manifests.difference(wanted, made)}); '
        'build it again.'
      )

    @functools.lru_cache(_MAX_OPEN_SHARDS)
    def shard(i: int) -> term_counts.Shard:
      # Slices of plain arrays are cheaper than those of np.memmap.
      return {x: np.asarray(found.shard(i, x)) for x in _ARRAYS}

    return cls(config, shard, found.rows('lengths'), made)

  @functools.cached_property
  def _mean_length(self) -> float:
    total = sum(x['lengths'].sum(dtype=np.int64) for x in self._shards())
    return int(total) / max(len(self), 1)

  def hashes(self) -> np.ndarray:
    """Return the hash of each text: [N] uint64."""
    none = np.zeros(0, np.uint64)
    return np.concatenate([none, *(x['hashes'] for x in self._shards())])

  def counts(
    self, places: np.ndarray, ids: np.ndarray
  ) -> Iterator[term_counts.Counts]:
    """Yield the counts of texts [m], named `places` [m], shard by shard."""
    shards = np.searchsorted(self._offsets, ids, side='right') - 1
    for i in np.unique(shards).tolist():
      shard, here = self._shard(i), shards == i
      starts = np.concatenate([[0], shard['ends']])
      counts = sparse.csc_array(
        (shard['counts'], shard['rows'], starts),
        shape=(len(shard['lengths']), len(shard['terms'])),
      )
      rows = ids[here] - self._offsets[i]
      yield term_counts.Counts(
        places[here], shard['terms'], counts.tocsr()[rows]
      )

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
    if k < 1:
      raise ValueError(f'k={k}: expected at least 1.')
    ids, scores = base.nothing(len(queries), k)
    for low in range(0, len(queries), _ASKED_TOGETHER):
      some = slice(low, low + _ASKED_TOGETHER)
      self._search(queries[some], ids[some], scores[some])
    return ids, scores

  def _search(self, queries, ids: np.ndarray, scores: np.ndarray) -> None:
    """Fill ids and scores [b, k], which hold nothing."""
    terms, asked = term_counts.count(self.config, queries)
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
    shard: term_counts.Shard,
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
    self, shard: term_counts.Shard, starts: np.ndarray, ends: np.ndarray
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


def _fields(
  config: term_counts.Scheme, texts: str, rows: int
) -> dict[str, Any]:
  return {'schema': _SCHEMA, 'texts': texts, 'rows': rows, **config.fields()}


def _spans(num_rows: int, size: int) -> list[range]:
  lows = range(0, num_rows, size)
  return [range(low, min(low + size, num_rows)) for low in lows]


def _make(
  config: term_counts.Scheme,
  passages: passages_lib.Passages,
  span: range,
  known: term_counts.Known | None = None,
  progress: shards_lib.Progress | None = None,
) -> term_counts.Shard:
  """Return the shard of passages; those that are not known are analysed."""
  ids = np.arange(span.start, span.stop)
  hashes = passages.hashes(ids)
  parts = list(known(hashes)) if known else []
  new = np.ones(len(ids), bool)
  for part in parts:
    new[part.places] = False
  places = np.flatnonzero(new)
  read = (
    passages.search_texts(ids[places[low : low + _READ_TOGETHER]])
    for low in range(0, len(places), _READ_TOGETHER)
  )
  texts = itertools.chain.from_iterable(read)
  for part in term_counts.analysed(config, texts):
    done = int(part.places[-1]) + 1
    parts.append(dataclasses.replace(part, places=places[part.places]))
    if progress:
      progress(len(ids) - len(places) + done, len(ids))
  return term_counts.pack(parts, hashes)


def _find(shard: term_counts.Shard, terms: np.ndarray) -> np.ndarray:
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
