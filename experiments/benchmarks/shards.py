# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Memory and speed of searches of large indices, and of indices in shards.

`released` searches as many vectors, random ones, as REALM's released index has, from a
mapped file of bfloat16 (3.4 GB). `shards` builds indices of a mixture and searches each
in a new process, with one shard in memory at a time and with all.
"""

import pathlib

import jax
import ml_dtypes
import numpy as np

from experiments.benchmarks import search as search_lib, turns
from retrieval import searchers
from retrieval.index import index as index_lib, vectors as vectors_lib
from retrieval.store import sharded_array, store_writer

_ROWS_OF_SHARD = 50_000  # of the store of vectors


def prepare_released(sizes: turns.Sizes) -> turns.Sizes:
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


def build_released(side: str, sizes: turns.Sizes) -> turns.Steps:
  """Return 'search', which searches by other queries each time.

  A device with enough memory keeps the vectors; otherwise they stream.
  """
  del side
  vectors = sharded_array.open_npy(pathlib.Path(sizes['folder'], 'vectors.npy'))
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


# Side -> fields of its index, which differ from `IndexConfig`'s.
INDICES = {
  f'{name}, {n}': {'searcher': searcher, 'shards': n}
  for searcher, name in (('scann', 'ScaNN'), ('exact', 'exact'))
  for n in (1, 4, 16)
} | {
  f'ScaNN, 4, rescore={x}': {
    'searcher': 'scann',
    'shards': 4,
    'scann': {'rescore': x},
  }
  for x in ('int8', 'none')
}


def prepare_shards(sizes: turns.Sizes) -> turns.Sizes:
  """Build all indices; return what their reports say."""
  folder = pathlib.Path(sizes['folder'])
  rows, queries = search_lib.synthetic(
    sizes['num_rows'], sizes['dimension'], sizes['num_queries']
  )
  np.save(folder / 'queries.npy', queries)
  writer = store_writer.StoreWriter(folder / 'vectors', vectors_lib.KIND, {})
  starts = range(0, len(rows), _ROWS_OF_SHARD)
  for i, low in enumerate(starts):
    part = rows[low : low + _ROWS_OF_SHARD].astype(sizes['dtype'])
    writer.write(i, {'vectors': part})
  vectors, found = writer.publish(len(starts)).array('vectors'), {}
  for name, fields in INDICES.items():
    config = index_lib.IndexConfig(
      metric='dot_product', recall_at=sizes['k'], recall_floor=0.0, **fields
    )
    report = index_lib.build_index(
      folder / name, vectors, 'v', config, queries
    ).report
    recall = report[f'recall@{sizes["k"]}']
    found[name] = {'recall': recall, 'build s': report['build_sec']}
  return {'found': found}


def build_shards(side: str, sizes: turns.Sizes) -> turns.Steps:
  """Return 'search', which opens the index of a side in its untimed round."""
  name, _, held = side.partition(' held ')
  path = pathlib.Path(sizes['folder'], name)
  queries = np.load(path.with_name('queries.npy'))
  opened, start = [], turns.status_bytes('VmRSS')

  def search():
    if not opened:
      opened.append(searchers.load(path, shards_in_memory=int(held or 0)))
    opened[0].search(queries, sizes['k'])
    more = turns.status_bytes('VmHWM') - start
    found = sizes['found'][name] | {'index MiB': more / 2**20}
    return {'items': len(queries), **found}

  return {'search': search}


TASKS = {
  'released': turns.Task(
    build=build_released,
    sizes={'shape': (13_353_718, 128), 'num_queries': 64, 'k': 5},
    sides=('exact',),
    prepare=prepare_released,
  ),
  'shards': turns.Task(
    build=build_shards,
    sizes={
      'num_rows': 200_000,
      'dimension': 384,
      'num_queries': 2000,
      'k': 10,
      'dtype': 'float32',
    },
    # Indices in shards also with one of these in memory.
    sides=tuple(
      side
      for name, x in INDICES.items()
      for side in ([f'{name} held 1'] * (x['shards'] > 1) + [name])
    ),
    prepare=prepare_shards,
    repeats=3,
    apart=True,
  ),
}
