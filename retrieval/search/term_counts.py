# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Texts to counts of their terms, and those to a shard of a sparse index.

`sparse_index` says what a shard holds.
"""

import array
from collections.abc import Callable, Iterable, Iterator, Mapping
import dataclasses
import itertools
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from scipy import sparse
import xxhash

_TOGETHER = 2048  # texts whose terms are in memory as strings

Shard = Mapping[str, np.ndarray]


@runtime_checkable
class Scheme(Protocol):
  """Which terms a text has, and what they weigh; a frozen dataclass."""

  num_buckets: ClassVar[int]  # of hashed terms; 0 keeps all 64 bits

  def fields(self) -> dict[str, Any]:
    """Return JSON fields that determine the terms of a text."""

  def terms(self, text: str) -> list[str]:
    """Return the terms of a text, repeated ones as often as they stand there."""

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


@dataclasses.dataclass(frozen=True)
class Counts:
  """Terms of some texts of a shard."""

  places: np.ndarray  # [m] rows in the shard
  terms: np.ndarray  # [T] uint64 hashes, ascending
  counts: sparse.csr_array  # [m, T]


# hashes [n] of texts -> counts of those that are known
Known = Callable[[np.ndarray], Iterable[Counts]]


def hash_text(text: str) -> int:
  """Hash a term or a text to 64 bits."""
  return xxhash.xxh3_64_intdigest(text.encode('utf-8', 'surrogatepass'))


def analysed(config: Scheme, texts: Iterable[str]) -> Iterator[Counts]:
  """Yield the counts of texts, some at a time; places are positions."""
  texts, first = iter(texts), 0
  while some := list(itertools.islice(texts, _TOGETHER)):
    terms, counts = count(config, some)
    yield Counts(np.arange(first, first + len(some)), terms, counts)
    first += len(some)


def count(
  config: Scheme, texts: Iterable[str]
) -> tuple[np.ndarray, sparse.csr_array]:
  """Return the terms [T] of all texts, ascending, and counts [b, T]."""
  numbers: dict[str, int] = {}
  flat, ends = array.array('i'), [0]
  for text in texts:
    flat.extend(
      [numbers.setdefault(x, len(numbers)) for x in config.terms(text)]
    )
    ends.append(len(flat))
  hashes = np.fromiter(map(hash_text, numbers), np.uint64, len(numbers))
  if config.num_buckets:
    hashes %= np.uint64(config.num_buckets)
  terms, order = np.unique(hashes, return_inverse=True)
  columns = order[np.array(flat, np.int32)]
  counts = sparse.csr_array(
    (np.ones(len(columns), np.int32), columns, ends),
    shape=(len(ends) - 1, len(terms)),
  )
  counts.sum_duplicates()
  return terms, counts


def pack(parts: Iterable[Counts], hashes: np.ndarray) -> Shard:
  """Return the arrays of a shard of texts with hashes [n]."""
  parts = list(parts)
  terms = np.unique(np.concatenate([part.terms for part in parts]))
  counts = []
  for part in parts:
    columns = np.searchsorted(terms, part.terms)[part.counts.indices]
    counts.append(
      sparse.csr_array(
        (part.counts.data, columns, part.counts.indptr),
        shape=(part.counts.shape[0], len(terms)),
      )
    )
  order = np.argsort(np.concatenate([part.places for part in parts]))
  # Postings of a column of CSC that was CSR ascend.
  by_term = sparse.vstack(counts, 'csr')[order].tocsc()
  used = np.diff(by_term.indptr) > 0  # Other texts had the other terms.
  data = by_term.data
  lengths = np.bincount(by_term.indices, data, len(hashes))
  return {
    'terms': terms[used],
    'ends': by_term.indptr[1:][used].astype(np.int64),
    'rows': by_term.indices.astype(np.uint16),
    'counts': data.astype(np.min_scalar_type(data.max(initial=0))),
    'lengths': lengths.astype(np.uint32),
    'hashes': hashes,
  }
