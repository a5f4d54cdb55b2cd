# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Compare recall and speed of our searchers and FAISS, in one process.

  python -m experiments.benchmarks.search --vectors=RUN/data/vectors-train \
    --queries=RUN/data/vectors-valid --output=search

Without --vectors the command searches a synthetic mixture. All sides take
turns, so that each sees the same machine; the figures are medians over rounds.
FAISS is optional (pip install faiss-cpu). Recall counts rows that tie with the
k-th row of exact search.
"""

from collections.abc import Callable
import dataclasses
import functools
import os
import pathlib
import tempfile
import time

from absl import flags, logging
import numpy as np

from experiments.engine import command, progress, reports
from retrieval import searchers
from retrieval.index import vectors as vectors_lib
from retrieval.searchers import recall_check
from retrieval.store import store

Search = Callable[[np.ndarray], np.ndarray]
_SHARES = (40, 20, 10, 5)  # one of so many leaves or lists is searched
# Name of an index of FAISS -> its recipe, and the parameter that is swept.
_FAISS = {
  'FAISS flat': ('Flat', ''),
  'FAISS IVF-Flat': ('IVF{lists},Flat', 'nprobe'),
  'FAISS IVF-PQ4fs-RFlat': ('IVF{lists},PQ{half}x4fs,RFlat', 'nprobe'),
  'FAISS HNSW': ('HNSW32', 'efSearch'),
}


@dataclasses.dataclass
class MeasuredSearcher:
  """A searcher with one setting, and its measures."""

  name: str  # name of the searcher
  setting: str  # the value that trades recall for speed
  # queries [q, d] -> ids [q, k]; None if it is not installed
  search: Search | None = None
  # seconds to build the index, which settings of one index share
  build_sec: float = 0.0
  bytes_per_vector: float = 0.0  # size of the index
  # wall seconds of each round
  wall_sec: list[float] = dataclasses.field(default_factory=list)
  # CPU seconds of each round, over all cores
  cpu_sec: list[float] = dataclasses.field(default_factory=list)
  recall: float = float('nan')  # recall at k
  num_queries: int = 0  # of each round

  @property
  def per_sec(self) -> float:
    """Median of queries a second."""
    return self.num_queries / float(np.median(self.wall_sec))


def synthetic(num_rows: int, dimension: int, num_queries: int):
  """Return vectors [n, d] and queries [q, d] of a mixture on the sphere."""
  rng = np.random.default_rng(0)
  clusters = max(1, num_rows // 100)
  centers = rng.standard_normal((clusters, dimension), np.float32)
  total = num_rows + num_queries
  rows = centers[rng.integers(0, clusters, total)]
  rows += 1.5 * rng.standard_normal((total, dimension), np.float32)
  rows /= np.linalg.norm(rows, axis=1, keepdims=True)
  return rows[:num_rows], rows[num_rows:]


def read(path: str) -> np.ndarray:
  """Read [n, d] vectors from an .npy file or a vector store.

  Raises:
    ValueError: if the file or store does not exist.
  """
  if not path.endswith('.npy'):
    array = store.Store.open(path, vectors_lib.KIND).array('vectors')
  elif pathlib.Path(path).exists():
    array = np.load(path, mmap_mode='r')
  else:
    raise ValueError(f'{path}: no such file.')
  return np.ascontiguousarray(array[:], np.float32)


def _scann_rows(
  vectors, metric: str, k: int, soar: bool
) -> list[MeasuredSearcher]:
  name = 'ScaNN SOAR' if soar else 'ScaNN'
  if not searchers.scann_available():
    return [MeasuredSearcher(name, '')]
  start = time.monotonic()
  searcher = searchers.ScannSearcher.build(
    vectors, metric, searchers.ScannConfig(soar=soar)
  )
  sec = time.monotonic() - start
  with tempfile.TemporaryDirectory() as folder:
    searcher.save(folder)
    files = pathlib.Path(folder).iterdir()
    size = sum(f.stat().st_size for f in files) / len(vectors)
  rows = []
  for share in _SHARES:
    leaves = max(1, searcher.settings['num_leaves'] // share)

    def search(queries, leaves=leaves):
      return searcher.search(queries, k, num_leaves_to_search=leaves)[0]

    rows.append(MeasuredSearcher(name, f'leaves={leaves}', search, sec, size))
  return rows


def _faiss_rows(vectors, metric: str, k: int) -> list[MeasuredSearcher]:
  """Build FAISS's indices with as many lists as ScaNN has leaves."""
  try:
    import faiss
  except ImportError:
    return [MeasuredSearcher(name, '') for name in _FAISS]
  faiss.omp_set_num_threads(len(os.sched_getaffinity(0)))
  # By default FAISS searches few queries in a flat index without BLAS.
  faiss.cvar.distance_compute_blas_threshold = 20
  num_rows, dimension = vectors.shape
  lists = max(1, round(num_rows**0.5))
  distance = {
    'dot_product': faiss.METRIC_INNER_PRODUCT,
    'squared_l2': faiss.METRIC_L2,
  }[metric]
  swept = {
    '': [0],
    'nprobe': [max(1, lists // share) for share in _SHARES],
    'efSearch': [32, 64, 128, 256],
  }
  space, rows = faiss.ParameterSpace(), []
  for name, (recipe, parameter) in _FAISS.items():
    start = time.monotonic()
    recipe = recipe.format(lists=lists, half=dimension // 2)
    index = faiss.index_factory(dimension, recipe, distance)
    index.train(vectors)
    index.add(vectors)
    sec = time.monotonic() - start
    size = len(faiss.serialize_index(index)) / num_rows
    refines = isinstance(faiss.downcast_index(index), faiss.IndexRefine)

    def search(queries, value, index=index, name=parameter, refines=refines):
      if name:
        space.set_index_parameter(index, name, value)
      if refines:  # score as many rows again as ScaNN does
        space.set_index_parameter(index, 'k_factor_rf', 100 / k)
      return index.search(queries, k)[1]

    for value in swept[parameter]:
      setting = f'{parameter}={value}' if parameter else ''
      one = functools.partial(search, value=value)
      rows.append(MeasuredSearcher(name, setting, one, sec, size))
  return rows


def run(
  vectors: np.ndarray, queries: np.ndarray, metric: str, k: int, rounds: int
) -> list[MeasuredSearcher]:
  """Build and measure all searchers, each with all its settings.

  Args:
    vectors: [n, d] float32.
    queries: [q, d] float32, searched in one call.
    metric: 'dot_product' or 'squared_l2'.
  """
  exact = searchers.ExactSearcher(vectors, metric)
  wanted, _ = exact.search(queries, k)
  scores = exact.score(queries, wanted)
  size = 4.0 * vectors.shape[1]
  rows = [
    MeasuredSearcher('exact', '', lambda q: exact.search(q, k)[0], 0.0, size)
  ]
  for soar in (False, True)[: 1 + (metric == 'dot_product')]:
    rows += _scann_rows(vectors, metric, k, soar)
  rows += _faiss_rows(vectors, metric, k)
  installed = [row for row in rows if row.search]
  for row in installed:
    ids = row.search(queries)
    row.recall = recall_check.agreement_with_exact(
      ids, wanted, exact.score(queries, ids), scores
    )
  for _ in range(rounds):
    for row in installed:
      cpu, wall = time.process_time(), time.perf_counter()
      row.search(queries)
      row.wall_sec.append(time.perf_counter() - wall)
      row.cpu_sec.append(time.process_time() - cpu)
      row.num_queries = len(queries)
  return rows


def ratios(rows: list[MeasuredSearcher]) -> dict[str, float]:
  """Return our best queries a second over FAISS's, at equal recall."""
  done = [row for row in rows if row.wall_sec]

  def best(prefix, recall):
    found = [
      r for r in done if r.name.startswith(prefix) and r.recall >= recall
    ]
    return min((float(np.median(r.wall_sec)) for r in found), default=None)

  pairs = {'exact / FAISS flat': ('exact', 'FAISS flat', 0.0)}
  for floor in (0.9, 0.95, 0.98, 0.99):
    pairs[f'ScaNN / FAISS, recall >= {floor}'] = ('ScaNN', 'FAISS', floor)
  results = {}
  for name, (ours, theirs, floor) in pairs.items():
    sec = best(ours, floor), best(theirs, floor)
    if None not in sec:
      results[name] = sec[1] / sec[0]
  return results


def _print(rows: list[MeasuredSearcher], title: str, k: int) -> None:
  heads = ['searcher', 'setting', f'recall@{k}', 'queries/s', 'per CPU s']
  lines = [
    (
      row.name,
      row.setting,
      f'{row.recall:.4f}',
      f'{row.per_sec:,.0f}',
      f'{row.num_queries / np.median(row.cpu_sec):,.0f}',
      f'{row.build_sec:.1f}',
      f'{row.bytes_per_vector:,.0f}',
    )
    if row.search
    else (row.name, 'not installed', *['-'] * 5)
    for row in rows
  ]
  reports.print_table([*heads, 'build s', 'B/vector'], lines, title)
  for name, ratio in ratios(rows).items():
    progress.console().print(
      f'{name}: {ratio:.2f} times the queries/s', highlight=False
    )


def _plot(rows: list[MeasuredSearcher], path: str, title: str, k: int) -> None:
  with reports.picture(path, figsize=(7, 5)) as (_, axes):
    for name in dict.fromkeys(row.name for row in rows if row.wall_sec):
      mine = sorted((r.recall, r.per_sec) for r in rows if r.name == name)
      style = '--' if name.startswith('FAISS') else '-'
      axes.plot(*zip(*mine, strict=True), style, marker='o', label=name)
    axes.set(xlabel=f'recall@{k}', ylabel='queries/s')
    axes.set(yscale='log', title=title)
    axes.grid(alpha=0.3)
    axes.legend()


def report(
  rows: list[MeasuredSearcher], title: str, k: int, output: str
) -> None:
  """Print the table; write OUTPUT.json and OUTPUT.png unless output is ''."""
  _print(rows, title, k)
  if not output:
    return
  names = [f.name for f in dataclasses.fields(MeasuredSearcher)]
  names = [x for x in names if x not in ('search', 'num_queries')]
  results = {
    'title': title,
    'rows': [
      {name: getattr(row, name) for name in names}
      | {'queries_per_sec': row.per_sec}
      for row in rows
      if row.wall_sec
    ],
    'not_installed': [row.name for row in rows if row.search is None],
    'ratios': ratios(rows),
  }
  reports.write_json(f'{output}.json', results)
  _plot(rows, f'{output}.png', title, k)


def main(argv: list[str]) -> None:
  """Measure and report."""
  del argv
  logging.set_verbosity(logging.WARNING)
  options = flags.FLAGS
  if options.vectors:
    vectors = read(options.vectors)
    queries = read(options.queries) if options.queries else vectors[::-1]
    queries = np.ascontiguousarray(queries[: options.num_queries])
  else:
    vectors, queries = synthetic(
      options.num_rows, options.dimension, options.num_queries
    )
  num_cores = len(os.sched_getaffinity(0))
  title = (
    f'{len(vectors):,} x {vectors.shape[1]} vectors, {options.metric}, '
    f'batches of {len(queries)}, {num_cores} cores'
  )
  rows = run(vectors, queries, options.metric, options.k, options.rounds)
  report(rows, title, options.k, options.output)


if __name__ == '__main__':
  flags.DEFINE_string('vectors', '', '.npy file or vector store to search.')
  flags.DEFINE_string(
    'queries', '', 'File or store of queries; default: rows of --vectors.'
  )
  flags.DEFINE_enum(
    'metric', 'dot_product', ['dot_product', 'squared_l2'], 'Score.'
  )
  flags.DEFINE_integer('k', 10, 'Number of neighbors.')
  flags.DEFINE_integer('num_queries', 500, 'Queries of a batch.')
  flags.DEFINE_integer('num_rows', 100_000, 'Number of the synthetic vectors.')
  flags.DEFINE_integer('dimension', 128, 'Width of the synthetic vectors.')
  flags.DEFINE_integer('rounds', 7, 'Timed rounds.')
  flags.DEFINE_string(
    'output', '', 'Stem of the files OUTPUT.json and OUTPUT.png.'
  )
  command.main_of_script(main)
