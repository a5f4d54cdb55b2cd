# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Measure speed, memory and recall of one index and of indices in shards.

  python -m experiments.benchmarks.shards --num_rows=200000 --dimension=384

Indices of a synthetic mixture are built one after another; each is searched in a new
process, whose peak of memory beyond its start is printed. All queries are one batch,
and every batch opens the shards that are not held. Bytes a vector, which are GB per
billion vectors, are what an open shard takes, as the library predicts it.
"""

import concurrent.futures
import multiprocessing
import os
import pathlib
import tempfile
import time
from typing import Any

from absl import flags, logging
import numpy as np

from experiments.benchmarks import search, turns
from experiments.engine import command, reports
from retrieval import searchers
from retrieval.index import index as index_lib, vectors as vectors_lib
from retrieval.searchers import scann
from retrieval.store import store_writer

_ROWS_OF_SHARD = 50_000  # of the store of vectors
_SHARDS = (1, 4, 16)
_FEW = 4  # of 16 shards that are asked
_METRIC = 'dot_product'


def cases() -> list[dict[str, Any]]:
  """Return the fields of each index, which differ from `IndexConfig`'s."""
  found = [{'searcher': 'scann', 'shards': n} for n in _SHARDS]
  most = _SHARDS[-1]
  found.append({'searcher': 'scann', 'shards': most, 'shard_by': 'centroid'})
  found.append(found[-1] | {'shards_to_search': _FEW})
  for rescore in ('int8', 'none'):
    found.append(
      {'searcher': 'scann', 'shards': 4, 'scann': {'rescore': rescore}}
    )
  found.append({'searcher': 'int8', 'shards': 4})
  return found + [{'searcher': 'exact', 'shards': n} for n in _SHARDS]


def write(path: pathlib.Path, rows: np.ndarray, dtype: str):
  """Write a store of vectors; return its array."""
  writer = store_writer.StoreWriter(path, vectors_lib.KIND, {})
  starts = range(0, len(rows), _ROWS_OF_SHARD)
  for i, low in enumerate(starts):
    part = rows[low : low + _ROWS_OF_SHARD].astype(dtype)
    writer.write(i, {'vectors': part})
  return writer.publish(len(starts)).array('vectors')


def measure(
  path: str, queries: np.ndarray, k: int, held: int, rounds: int
) -> dict[str, float]:
  """Search an index in this process.

  Args:
    held: shards in memory at a time; 0 is all.

  Returns:
    queries_per_sec: median over the rounds, the first search left out.
    peak_mib: peak of memory beyond that before the index was opened.
    bytes_per_vector: in memory, for each vector of an open shard.
  """
  start = turns.status_bytes('VmRSS')
  turns.reset_peak()
  searcher = searchers.load(path, shards_in_memory=held)
  searcher.search(queries, k)
  sec = []
  for _ in range(rounds):
    began = time.perf_counter()
    searcher.search(queries, k)
    sec.append(time.perf_counter() - began)
  dimension = searcher.dimension
  if isinstance(searcher, searchers.ShardedSearcher):
    size = searcher.bytes_in_memory
  elif isinstance(searcher, searchers.ScannSearcher):
    size = scann.expected_bytes(1000, dimension, scann.ScannConfig())[1] / 1000
  else:
    size = 4.0 * dimension
  return {
    'bytes_per_vector': size,
    'queries_per_sec': len(queries) / float(np.median(sec)),
    'peak_mib': (turns.peak_bytes() - start) / 2**20,
  }


def run(
  rows: np.ndarray,
  queries: np.ndarray,
  folder: pathlib.Path,
  *,
  k: int,
  rounds: int,
  dtype: str,
) -> list[dict[str, Any]]:
  """Build and measure all cases.

  Args:
    rows: [n, d] float32.
    queries: [q, d] float32, searched in one call.
    dtype: of the vectors on disk.
  """
  vectors, found = write(folder / 'vectors', rows, dtype), []
  context = multiprocessing.get_context('spawn')
  for number, fields in enumerate(cases()):
    config = index_lib.IndexConfig(
      metric=_METRIC, recall_at=k, recall_floor=0.0, **fields
    )
    path = folder / f'index{number}'
    report = index_lib.build_index(path, vectors, 'v', config, queries).report
    for held in (1, 0)[: 1 + (config.shards > 1)]:
      with concurrent.futures.ProcessPoolExecutor(
        1, mp_context=context
      ) as pool:
        future = pool.submit(measure, str(path), queries, k, held, rounds)
        measured = future.result()
      found.append(
        fields
        | measured
        | {
          'held': held or config.shards,
          'recall': report[f'recall@{k}'],
          'build_sec': report['build_sec'],
        }
      )
  return found


def report(rows: list[dict[str, Any]], title: str, k: int) -> None:
  """Print the table."""
  heads = ['index', 'shards', 'asked', 'held', f'recall@{k}', 'queries/s']
  lines = [
    (
      ' '.join([row['searcher'], *row.get('scann', {}).values()]),
      f'{row["shards"]} by {row.get("shard_by", "rows")}',
      str(row.get('shards_to_search', row['shards'])),
      str(row['held']),
      f'{row["recall"]:.4f}',
      f'{row["queries_per_sec"]:,.0f}',
      f'{row["peak_mib"]:,.0f}',
      f'{row["bytes_per_vector"]:,.0f}',
      f'{row["build_sec"]:.1f}',
    )
    for row in rows
  ]
  heads += ['peak MiB', 'B/vector', 'build s']
  reports.print_table(heads, lines, title, wrap=True)


def main(argv: list[str]) -> None:
  """Measure and report."""
  del argv
  logging.set_verbosity(logging.WARNING)
  options = flags.FLAGS
  rows, queries = search.synthetic(
    options.num_rows, options.dimension, options.num_queries
  )
  cores = len(os.sched_getaffinity(0))
  title = (
    f'{len(rows):,} x {rows.shape[1]} {options.dtype} vectors, {_METRIC}, '
    f'batches of {len(queries)}, {cores} cores'
  )
  with tempfile.TemporaryDirectory(dir=options.folder or None) as folder:
    found = run(
      rows,
      queries,
      pathlib.Path(folder),
      k=options.k,
      rounds=options.rounds,
      dtype=options.dtype,
    )
  report(found, title, options.k)
  if options.output:
    reports.write_json(options.output, {'title': title, 'rows': found})


if __name__ == '__main__':
  flags.DEFINE_integer('k', 10, 'Number of neighbors.')
  flags.DEFINE_integer('num_queries', 2000, 'Queries of a batch.')
  flags.DEFINE_integer('num_rows', 200_000, 'Number of the vectors.')
  flags.DEFINE_integer('dimension', 384, 'Width of the vectors.')
  flags.DEFINE_integer('rounds', 3, 'Timed rounds.')
  flags.DEFINE_enum(
    'dtype', 'float32', vectors_lib.DTYPES, 'Type of the vectors on disk.'
  )
  flags.DEFINE_string('folder', '', 'Folder of the files; default: temporary.')
  flags.DEFINE_string('output', '', 'File of the figures, JSON.')
  command.main_of_script(main)
