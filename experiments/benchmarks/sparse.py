# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Compare building and searching of our sparse indices and bm25s, in one process.

  python -m experiments.benchmarks.sparse --documents=20000 --corpus=FILE.jsonl

Without --corpus the packaged articles are indexed. Documents are cut into passages of
100 words below their titles; queries are words in a row from random passages: --words
of them, as in a question, or 64, as in a chunk. All sides take turns, so that each sees
the same machine, and cut text into words anew; ours writes its index to disk and
searches it memory-mapped. Seconds are CPU seconds. Peaks of memory are above what was
held before, on Linux only. One side needs the package numba.
"""

from collections.abc import Callable, Sequence
import ctypes
import dataclasses
import importlib.util
import itertools
import pathlib
import platform
import tempfile
import time

from absl import flags, logging
import numpy as np

from experiments.benchmarks import turns
from experiments.engine import command, progress, reports
from retrieval.search import (
  bm25,
  sparse_index,
  tfidf,
)
from retrieval.text import corpus as corpus_lib, tokens as tokens_lib

_PASSAGE_WORDS = 100  # Karpukhin et al. 2020
_CHUNK_WORDS = 64

Search = Callable[[Sequence[str], int], np.ndarray]
Build = Callable[[Sequence[str], pathlib.Path], Search]


@dataclasses.dataclass
class Measured:
  """One side and its measures."""

  name: str
  build: Build | None  # passages, empty folder -> search; None if not installed
  build_sec: float = 0.0  # CPU seconds
  build_mib: float = 0.0  # peak above the memory held before
  search_mib: float = 0.0
  # words of a query -> CPU seconds of each round
  sec: dict[int, list[float]] = dataclasses.field(default_factory=dict)
  # words of a query -> share of the first side's ids that this one finds, too
  same: dict[int, float] = dataclasses.field(default_factory=dict)


def _ours(index_of: type[sparse_index.SparseIndex]) -> Build:
  def build(passages, folder):
    texts = sparse_index.Texts(
      'passages',
      len(passages),
      lambda ids: [passages[i] for i in ids],
      lambda ids: tokens_lib.hash_ids([passages[i] for i in ids]),
    )
    index = index_of.build_store(folder / index_of.__name__, texts)
    return lambda queries, k: index.search(queries, k)[0]

  return build


def _bm25s(backend: str) -> Build | None:
  if backend == 'numba' and importlib.util.find_spec('numba') is None:
    return None
  import bm25s  # starts a JAX backend

  def build(passages, folder):
    del folder
    settings = bm25.Bm25Config()
    model = bm25s.BM25(k1=settings.k1, b=settings.b, backend=backend)

    def words(texts):
      return bm25s.tokenize(
        list(texts),
        token_pattern=r'(?u)\w+',
        stopwords=list(settings.stop_words),
        show_progress=False,
      )

    model.index(words(passages), show_progress=False)

    def search(queries, k):
      return model.retrieve(
        words(queries),
        k=k,
        show_progress=False,
        return_as='documents',
        backend_selection='numba' if backend == 'numba' else 'numpy',
      )

    return search

  return build


SIDES: dict[str, Callable[[], Build | None]] = {
  'BM25': lambda: _ours(bm25.Bm25),
  'TF-IDF': lambda: _ours(tfidf.TfIdf),
  'bm25s': lambda: _bm25s('numpy'),
  'bm25s, numba': lambda: _bm25s('numba'),
}


def passages_of(documents) -> list[str]:
  """Cut documents into passages of 100 words, each below its title."""
  found = []
  for document in documents:
    words = document.text.split()
    for low in range(0, len(words), _PASSAGE_WORDS):
      text = ' '.join(words[low : low + _PASSAGE_WORDS])
      found.append(f'{document.title}\n{text}')
  return found


def queries_of(passages: Sequence[str], count: int, length: int) -> list[str]:
  """Return texts of at most `length` words in a row of random passages."""
  rng = np.random.default_rng(0)
  found = []
  for i in rng.integers(0, len(passages), count):
    words = passages[i].split()
    start = int(rng.integers(0, max(1, len(words) - length)))
    found.append(' '.join(words[start : start + length]))
  return found


def _same(ids: np.ndarray, wanted: np.ndarray) -> float:
  """Return the share of wanted ids [b, k], -1 for none, in the same row of ids."""
  pairs = list(zip(ids, wanted, strict=True))
  found = sum(np.isin(b[b >= 0], a).sum() for a, b in pairs)
  return float(found / max((wanted >= 0).sum(), 1))


def _peak_mib(function: Callable, *arguments):
  """Return the result and the peak of memory, above what was held before."""
  if platform.libc_ver()[0] == 'glibc':
    ctypes.CDLL(None).malloc_trim(0)  # What is free is not held.
  turns.reset_peak()
  before = turns.status_bytes('VmRSS')
  result = function(*arguments)
  return result, (turns.peak_bytes() - before) / 2**20


def run(
  passages: Sequence[str],
  lengths: Sequence[int],
  num_queries: int,
  k: int,
  rounds: int,
  sides: Sequence[str] = tuple(SIDES),
) -> list[Measured]:
  """Build and measure some of `SIDES`.

  Args:
    lengths: words of a query.
  """
  rows = [Measured(name, SIDES[name]()) for name in sides]
  installed = [row for row in rows if row.build]
  queries = {n: queries_of(passages, num_queries, n) for n in lengths}
  with tempfile.TemporaryDirectory() as folder:
    searches: list[Search] = []
    for row in installed:
      start = time.process_time()
      search, row.build_mib = _peak_mib(
        row.build, passages, pathlib.Path(folder)
      )
      row.build_sec = time.process_time() - start
      searches.append(search)
    for n, texts in queries.items():
      wanted = None
      for row, search in zip(installed, searches, strict=True):
        ids, peak = _peak_mib(search, texts, k)
        wanted = ids if wanted is None else wanted
        row.same[n] = _same(ids, wanted)
        row.search_mib = max(row.search_mib, peak)
        row.sec[n] = []
      for _ in range(rounds):
        for row, search in zip(installed, searches, strict=True):
          start = time.process_time()
          search(texts, k)
          row.sec[n].append(time.process_time() - start)
  return rows


def report(rows: Sequence[Measured], num_queries: int, title: str) -> None:
  """Print the table, and the ratios of the first side to the others."""
  lengths = list(rows[0].sec)
  rates = {
    (row.name, n): num_queries / float(np.median(row.sec[n]))
    for row in rows
    for n in row.sec
  }
  heads = [f'{n} words, /s' for n in lengths]
  heads += [f'{n} same' for n in lengths]
  lines = [
    (
      row.name,
      f'{row.build_sec:.1f}',
      f'{row.build_mib:,.0f}',
      f'{row.search_mib:,.0f}',
      *(f'{rates[row.name, n]:,.0f}' for n in lengths),
      *(f'{row.same[n]:.3f}' for n in lengths),
    )
    if row.build
    else (row.name, 'not installed', *['-'] * (2 + len(heads)))
    for row in rows
  ]
  columns = ['side', 'build s', 'MiB', 'search MiB', *heads]
  reports.print_table(columns, lines, title)
  ours = rows[0]
  for row in rows[1:]:
    if row.build:
      parts = [f'building {row.build_sec / ours.build_sec:.2f}'] + [
        f'queries of {n} words {rates[ours.name, n] / rates[row.name, n]:.2f}'
        for n in lengths
      ]
      progress.console().print(
        f'{ours.name} is so many times as fast as {row.name}: '
        f'{", ".join(parts)}',
        highlight=False,
      )


def main(argv: list[str]) -> None:
  """Measure and report."""
  del argv
  logging.set_verbosity(logging.WARNING)
  options = flags.FLAGS
  given = {} if options.corpus else {'kind': 'vital'}
  corpus = corpus_lib.open_corpus(options.corpus, **given)
  limit = options.documents or None
  passages = passages_of(itertools.islice(corpus, limit))
  rows = run(
    passages,
    (options.words, _CHUNK_WORDS),
    options.num_queries,
    options.k,
    options.rounds,
    options.side,
  )
  title = (
    f'{len(passages):,} passages, batches of {options.num_queries} queries, '
    f'k = {options.k}'
  )
  report(rows, options.num_queries, title)


if __name__ == '__main__':
  flags.DEFINE_string('corpus', '', 'JSON lines; empty: the packaged articles.')
  flags.DEFINE_multi_enum('side', [*SIDES], [*SIDES], 'A side to measure.')
  flags.DEFINE_integer('documents', 0, 'Documents to index; 0 for all.')
  flags.DEFINE_integer('words', 8, 'Words of a question.', lower_bound=1)
  flags.DEFINE_integer('num_queries', 1000, 'Queries.', lower_bound=1)
  flags.DEFINE_integer('k', 100, 'Passages found for a query.', lower_bound=1)
  flags.DEFINE_integer('rounds', 5, 'Timed rounds.', lower_bound=1)
  command.main_of_script(main)
