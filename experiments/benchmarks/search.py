# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Recall and speed of our searchers and FAISS's.

Vectors and queries are .npy files or vector stores, or a synthetic mixture on the
sphere. All settings take turns. Recall counts rows that tie with the k-th row of exact
search; compare the fastest settings of equal recall. The floor of exact search is the
matrix product alone, which has no recall.
"""

from collections.abc import Callable, Iterator
import importlib.util
import itertools
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

from experiments.benchmarks import turns
from retrieval import searchers
from retrieval.index import vectors as vectors_lib
from retrieval.searchers import recall_check
from retrieval.store import store

_SHARES = (40, 20, 10, 5, 3)  # one of so many leaves or lists is searched
# Name -> recipe, parameter, and names of the settings with their values.
_LISTS = {f' 1/{x}': x for x in _SHARES}
_FAISS = {
  'FAISS flat': ('Flat', '', {'': 0}),
  'FAISS IVF-Flat': ('IVF{lists},Flat', 'nprobe', _LISTS),
  'FAISS IVF-PQ4fs': ('IVF{lists},PQ{half}x4fs,RFlat', 'nprobe', _LISTS),
  'FAISS HNSW': (
    'HNSW32',
    'efSearch',
    {f' {x}': x for x in (32, 64, 128, 256)},
  ),
}
# OpenBLAS's kernels; the one it takes by itself ('') may be a slow one.
_KERNELS = ('', 'Haswell', 'Zen', 'SkylakeX')
_TRIAL = """
import time, faiss, numpy
rows = numpy.random.default_rng(0).random((16384, 384), numpy.float32)
index = faiss.IndexFlatL2(384)
index.add(rows)
for _ in range(4):
  start = time.process_time()
  index.search(rows[:512], 10)
  print(time.process_time() - start)
"""
Search = Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]]
# Name, search, seconds to build and bytes a vector.
Setting = tuple[str, Search, float, float]


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
  """Read [n, d] vectors from an .npy file or a vector store."""
  if path.endswith('.npy'):
    array = np.load(path, mmap_mode='r')
  else:
    array = store.Store.open(path, vectors_lib.KIND).array('vectors')
  return np.ascontiguousarray(array[:], np.float32)


def prepare(sizes: turns.Sizes) -> turns.Sizes:
  """Write the vectors, the queries, and what exact search finds."""
  k, count = sizes['k'], sizes['num_queries']
  if sizes['vectors']:
    rows = read(sizes['vectors'])
    queries = read(sizes['queries']) if sizes['queries'] else rows[::-1]
    queries = queries[:count]
  else:
    rows, queries = synthetic(sizes['num_rows'], sizes['dimension'], count)
  exact = searchers.ExactSearcher(rows, sizes['metric'])
  wanted, _ = exact.search(queries, k)
  scores = exact.score(queries, wanted)
  arrays = {'rows': rows, 'queries': queries, 'ids': wanted, 'scores': scores}
  for name, array in arrays.items():
    np.save(f'{sizes["folder"]}/{name}.npy', array)
  return {}


def env(side: str) -> dict[str, str]:
  """Return the variable that gives FAISS the fastest kernels of this machine."""
  took, code = {}, [sys.executable, '-c', _TRIAL]
  for name in _KERNELS if side == 'FAISS' else ():
    given = {'OPENBLAS_CORETYPE': name} if name else {}
    trial = subprocess.run(code, env=os.environ | given, capture_output=True)
    if not trial.returncode:  # else the processor lacks instructions
      took[name] = min(map(float, trial.stdout.split()))
  best = min(took, key=took.get, default='')
  return {'OPENBLAS_CORETYPE': best} if best else {}


def _ours(rows: np.ndarray, metric: str, threads: int) -> Iterator[Setting]:
  del threads  # all
  exact = searchers.ExactSearcher(rows, metric)
  yield 'exact', exact.search, 0.0, 4.0 * rows.shape[1]

  def product(queries, k):
    """Compute what exact search cannot do without; find nothing."""
    for low in range(0, len(rows), 4096):
      rows[low : low + 4096] @ queries.T
    return np.full((len(queries), k), -1), None

  yield 'matrix product alone', product, 0.0, 0.0
  for soar in (False, True)[: 1 + (metric == 'dot_product')]:
    start = time.monotonic()
    searcher = searchers.ScannSearcher.build(
      rows, metric, searchers.ScannConfig(soar=soar)
    )
    sec = time.monotonic() - start
    with tempfile.TemporaryDirectory() as folder:
      searcher.save(folder)
      files = pathlib.Path(folder).iterdir()
      size = sum(f.stat().st_size for f in files) / len(rows)
    for share in _SHARES:
      leaves = max(1, searcher.settings['num_leaves'] // share)

      def search(queries, k, searcher=searcher, leaves=leaves):
        return searcher.search(queries, k, num_leaves_to_search=leaves)

      yield f'ScaNN{" SOAR" if soar else ""} 1/{share}', search, sec, size


def _faiss(rows: np.ndarray, metric: str, threads: int) -> Iterator[Setting]:
  """FAISS's indices, with as many lists as ScaNN has leaves."""
  import faiss

  faiss.omp_set_num_threads(threads)
  # By default FAISS searches few queries in a flat index without BLAS.
  faiss.cvar.distance_compute_blas_threshold = 20
  num_rows, dimension = rows.shape
  lists = max(1, round(num_rows**0.5))
  distance = {
    'dot_product': faiss.METRIC_INNER_PRODUCT,
    'squared_l2': faiss.METRIC_L2,
  }[metric]
  space = faiss.ParameterSpace()
  for name, (recipe, parameter, settings) in _FAISS.items():
    start = time.monotonic()
    recipe = recipe.format(lists=lists, half=dimension // 2)
    index = faiss.index_factory(dimension, recipe, distance)
    index.train(rows)
    index.add(rows)
    sec = time.monotonic() - start
    size = len(faiss.serialize_index(index)) / num_rows
    refines = isinstance(faiss.downcast_index(index), faiss.IndexRefine)
    for setting, value in settings.items():
      values = {parameter: value} if parameter else {}
      if parameter == 'nprobe':
        values[parameter] = max(1, lists // value)

      def search(queries, k, values=values, index=index, refines=refines):
        # Score as many rows again as ScaNN does.
        again = {'k_factor_rf': 100 / k} if refines else {}
        for name, value in {**values, **again}.items():
          space.set_index_parameter(index, name, value)
        return index.search(queries, k)[::-1]

      yield name + setting, search, sec, size


def build(side: str, sizes: turns.Sizes) -> turns.Steps:
  """Build the indices of a side; return a step for each of their settings."""
  folder, k, metric = sizes['folder'], sizes['k'], sizes['metric']
  rows, queries, wanted, scores = (
    np.load(f'{folder}/{x}.npy') for x in ('rows', 'queries', 'ids', 'scores')
  )
  exact = searchers.ExactSearcher(rows, metric)

  def step(search, answer):
    def run():
      ids, _ = search(queries, k)
      if 'recall' not in answer:  # in the untimed round
        answer['recall'] = recall_check.agreement_with_exact(
          ids, wanted, exact.score(queries, ids), scores
        )
      return answer

    return run

  of_side, count = (_faiss, 1) if side == 'FAISS' else (_ours, 2)
  settings = of_side(rows, metric, sizes['num_threads'])
  count = count if sizes['exact_only'] else None
  return {
    name: step(
      search, {'items': len(queries), 'build s': sec, 'B/vector': size}
    )
    for name, search, sec, size in itertools.islice(settings, count)
  }


TASKS = {
  'search': turns.Task(
    build=build,
    sizes={
      'vectors': '',
      'queries': '',  # '': rows of the vectors
      'num_rows': 100_000,
      'dimension': 128,
      'num_queries': 500,
      'metric': 'dot_product',
      'k': 10,
      'exact_only': False,  # whether FAISS's flat index alone is compared
    },
    sides=('ours', 'FAISS')[: 1 + bool(importlib.util.find_spec('faiss'))],
    env=env,
    prepare=prepare,
    repeats=7,
    rounds_first=True,
  )
}
