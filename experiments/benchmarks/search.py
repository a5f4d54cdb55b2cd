# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Recall and speed of our searchers and FAISS, and of indices in shards.

`search` takes vectors and queries of .npy files or vector stores, or a synthetic
mixture on the sphere. All settings take turns. Recall counts rows that tie with the
k-th row of exact search; compare the fastest settings of equal recall. `released`
searches as many vectors, random ones, as REALM's released index has, from a mapped file
of bfloat16 (3.4 GB). `shards` builds indices of a mixture and searches each in a new
process, with one shard in memory at a time and with all: more_mib is what the search
adds to the process.
"""

from collections.abc import Callable, Sequence
import importlib.util
import pathlib
import tempfile
import time
from typing import Any

import jax
import ml_dtypes
import numpy as np

from experiments.benchmarks import comparison, turns
from retrieval import searchers
from retrieval.index import index as index_lib, vectors as vectors_lib
from retrieval.searchers import recall_check
from retrieval.store import sharded_array, store, store_writer

_SHARES = (40, 20, 10, 5)  # one of so many leaves or lists is searched
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
_ROWS_OF_SHARD = 50_000  # of the store of vectors
Steps = dict[str, Callable[[], dict[str, float]]]


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


def prepare(sizes: dict[str, Any]) -> dict[str, Any]:
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


def _ours(rows: np.ndarray, sizes: dict[str, Any]):
  """Yield name, search, seconds to build and bytes a vector of our searchers."""
  exact = searchers.ExactSearcher(rows, sizes['metric'])
  yield 'exact', exact.search, 0.0, 4.0 * rows.shape[1]
  soars = (False, True) if sizes['metric'] == 'dot_product' else (False,)
  for soar in soars if searchers.scann_available() else ():
    start = time.monotonic()
    searcher = searchers.ScannSearcher.build(
      rows, sizes['metric'], searchers.ScannConfig(soar=soar)
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

      name = 'ScaNN SOAR' if soar else 'ScaNN'
      yield f'{name} 1/{share}', search, sec, size


def _faiss(rows: np.ndarray, sizes: dict[str, Any]):
  """The same of FAISS's indices, with as many lists as ScaNN has leaves."""
  import faiss

  faiss.omp_set_num_threads(sizes['num_threads'])
  # By default FAISS searches few queries in a flat index without BLAS.
  faiss.cvar.distance_compute_blas_threshold = 20
  num_rows, dimension = rows.shape
  lists = max(1, round(num_rows**0.5))
  distance = {
    'dot_product': faiss.METRIC_INNER_PRODUCT,
    'squared_l2': faiss.METRIC_L2,
  }[sizes['metric']]
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
      if parameter == 'nprobe':
        value = max(1, lists // value)

      def search(
        queries, k, value=value, index=index, name=parameter, refines=refines
      ):
        if name:
          space.set_index_parameter(index, name, value)
        if refines:  # score as many rows again as ScaNN does
          space.set_index_parameter(index, 'k_factor_rf', 100 / k)
        return index.search(queries, k)[::-1]

      yield name + setting, search, sec, size


def build(side: str, sizes: dict[str, Any]) -> Steps:
  """Build the indices of a side; return a step for each of their settings."""
  folder, k = sizes['folder'], sizes['k']
  rows, queries, wanted, scores = (
    np.load(f'{folder}/{x}.npy') for x in ('rows', 'queries', 'ids', 'scores')
  )
  exact = searchers.ExactSearcher(rows, sizes['metric'])
  found = {}

  def timed(search, answer):
    def run():
      ids, _ = search(queries, k)
      if 'recall' not in answer:  # in the untimed round
        answer['recall'] = recall_check.agreement_with_exact(
          ids, wanted, exact.score(queries, ids), scores
        )
      return answer

    return run

  of_side = _faiss if side == 'FAISS' else _ours
  for name, search, sec, size in of_side(rows, sizes):
    answer = {'items': len(queries), 'build s': sec, 'B/vector': size}
    found[name] = timed(search, answer)
  return found


def steps(sizes: dict[str, Any]) -> dict[str, Sequence[str]]:
  """Return the settings of each side that is installed."""
  soars = ('', ' SOAR') if sizes['metric'] == 'dot_product' else ('',)
  ours = ['exact']
  if searchers.scann_available():
    ours += [f'ScaNN{x} 1/{share}' for x in soars for share in _SHARES]
  theirs = []
  if importlib.util.find_spec('faiss'):
    theirs = [x + y for x, (_, _, many) in _FAISS.items() for y in many]
  return dict.fromkeys(ours, ('ours',)) | dict.fromkeys(theirs, ('FAISS',))


def prepare_released(sizes: dict[str, Any]) -> dict[str, Any]:
  """Write random vectors in bfloat16, part by part."""
  rng, (count, width) = np.random.default_rng(0), sizes['shape']
  with open(f'{sizes["folder"]}/vectors.npy', 'wb') as f:
    header = {'descr': '<V2', 'fortran_order': False, 'shape': (count, width)}
    np.lib.format.write_array_header_1_0(f, header)
    for low in range(0, count, 1 << 18):
      shape = min(1 << 18, count - low), width
      rows = rng.standard_normal(shape, np.float32)
      f.write(rows.astype(ml_dtypes.bfloat16).tobytes())
  return {}


def build_released(side: str, sizes: dict[str, Any]) -> Steps:
  """Return 'search', which searches by other queries each time.

  A device with enough memory keeps the vectors; otherwise they stream.
  """
  del side
  path = pathlib.Path(sizes['folder']) / 'vectors.npy'
  vectors = sharded_array.open_npy(path)
  searcher = searchers.ExactSearcher(vectors, check=False)
  rng = np.random.default_rng(1)

  def search():
    shape = sizes['num_queries'], vectors.shape[1]
    searcher.search(rng.standard_normal(shape, np.float32), sizes['k'])
    device = jax.local_devices()[0].memory_stats() or {}
    return {
      'items': sizes['num_queries'],
      'host GiB': turns.status_bytes('RssAnon') / 2**30,
      'mapped GiB': turns.status_bytes('RssFile') / 2**30,
      'device GiB': device.get('peak_bytes_in_use', 0) / 2**30,
    }

  return {'search': search}


def indices() -> dict[str, dict[str, Any]]:
  """Fields of the index of each side, which differ from `IndexConfig`'s."""
  found = {}
  for n in (1, 4, 16):
    found[f'ScaNN, {n}'] = {'searcher': 'scann', 'shards': n}
  for rescore in ('int8', 'none'):
    fields = {'shards': 4, 'scann': {'rescore': rescore}}
    found[f'ScaNN, 4, rescore={rescore}'] = {'searcher': 'scann', **fields}
  for n in (1, 4, 16):
    found[f'exact, {n}'] = {'searcher': 'exact', 'shards': n}
  return found


def prepare_shards(sizes: dict[str, Any]) -> dict[str, Any]:
  """Build all indices; return what their reports say."""
  folder = pathlib.Path(sizes['folder'])
  rows, queries = synthetic(
    sizes['num_rows'], sizes['dimension'], sizes['num_queries']
  )
  np.save(folder / 'queries.npy', queries)
  writer = store_writer.StoreWriter(folder / 'vectors', vectors_lib.KIND, {})
  starts = range(0, len(rows), _ROWS_OF_SHARD)
  for i, low in enumerate(starts):
    part = rows[low : low + _ROWS_OF_SHARD].astype(sizes['dtype'])
    writer.write(i, {'vectors': part})
  vectors, found = writer.publish(len(starts)).array('vectors'), {}
  for name, fields in indices().items():
    config = index_lib.IndexConfig(
      metric='dot_product', recall_at=sizes['k'], recall_floor=0.0, **fields
    )
    report = index_lib.build_index(
      folder / name, vectors, 'v', config, queries
    ).report
    found[name] = {
      'recall': report[f'recall@{sizes["k"]}'],
      'build s': report['build_sec'],
    }
  return {'found': found}


def build_shards(side: str, sizes: dict[str, Any]) -> Steps:
  """Return 'search', which opens the index of a side in its untimed round."""
  name, _, held = side.partition(' held ')
  path = pathlib.Path(sizes['folder']) / name
  queries = np.load(path.with_name('queries.npy'))
  opened, start = [], turns.status_bytes('VmRSS')

  def search():
    if not opened:
      opened.append(searchers.load(path, shards_in_memory=int(held or 0)))
    opened[0].search(queries, sizes['k'])
    more = turns.peak_bytes() - start
    found = sizes['found'][name] | {'index MiB': more / 2**20}
    return {'items': len(queries), **found}

  return {'search': search}


def shards_sides(sizes: dict[str, Any]) -> dict[str, Sequence[str]]:
  """Return all indices, those in shards also with one of these in memory."""
  del sizes
  sides = []
  for name, fields in indices().items():
    sides += [f'{name} held 1', name] if fields['shards'] > 1 else [name]
  return {'search': sides}


TASKS = {
  'search': comparison.Task(
    build=build,
    sizes={
      'vectors': '',
      'queries': '',  # '': rows of the vectors
      'num_rows': 100_000,
      'dimension': 128,
      'num_queries': 500,
      'metric': 'dot_product',
      'k': 10,
    },
    steps=steps,
    prepare=prepare,
    repeats=7,
    rounds_first=True,
  ),
  'released': comparison.Task(
    build=build_released,
    sizes={'shape': (13_353_718, 128), 'num_queries': 64, 'k': 5},
    steps=lambda _: {'search': ('exact',)},
    prepare=prepare_released,
  ),
  'shards': comparison.Task(
    build=build_shards,
    sizes={
      'num_rows': 200_000,
      'dimension': 384,
      'num_queries': 2000,
      'k': 10,
      'dtype': 'float32',
    },
    steps=shards_sides,
    prepare=prepare_shards,
    repeats=3,
    apart=True,
  ),
}
