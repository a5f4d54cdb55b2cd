# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Exact search over as many bfloat16 vectors as REALM's released index holds.

The vectors (3.4 GB, random) are memory-mapped. A device with enough memory
keeps them; otherwise they stream, once for each batch.
"""

import pathlib
import time
from typing import Any

from absl import logging
import jax
import ml_dtypes
import numpy as np

from experiments.benchmarks import turns
from experiments.engine import command, progress
from retrieval import searchers
from retrieval.store import sharded_array, store

DIMENSION = 128
QUERIES = 64
K = 5
_ROWS = 1 << 18  # written at once


def make_vectors(folder: pathlib.Path, count: int) -> np.ndarray:
  """Return mapped random vectors [count, DIMENSION]; write them at first use."""
  file = folder / f'vectors-{count}.npy'
  if not file.exists():
    logging.info('Writing %s.', file)
    rng = np.random.default_rng(0)
    shape = (count, DIMENSION)
    with store.open_atomically(file) as f:
      header = {'descr': '<V2', 'fortran_order': False, 'shape': shape}
      np.lib.format.write_array_header_1_0(f, header)
      for low in range(0, count, _ROWS):
        shape = (min(_ROWS, count - low), DIMENSION)
        rows = rng.standard_normal(shape, np.float32)
        f.write(rows.astype(ml_dtypes.bfloat16).tobytes())
  return sharded_array.open_npy(file)


def run(folder: pathlib.Path, count: int, repeats: int) -> dict[str, Any]:
  """Search and print the cost of a batch of queries.

  Returns:
    {'num_vectors', 'queries', 'device', 'first_sec', 'wall_sec' (median),
    'host_gib' (without the mapped file), 'mapped_gib' (the file's part in
    memory), 'device_gib' (0 if the device does not report it)}.
  """
  command.keep_memory()
  vectors = make_vectors(folder, count)
  searcher = searchers.ExactSearcher(vectors, check=False)
  rng = np.random.default_rng(1)
  seconds = []
  for _ in range(repeats + 1):
    queries = rng.standard_normal((QUERIES, DIMENSION), np.float32)
    start = time.perf_counter()
    searcher.search(queries, K)
    seconds.append(time.perf_counter() - start)
  device = jax.local_devices()[0]
  stats = device.memory_stats() or {}
  mapped = turns.status_bytes('RssFile')
  result = {
    'num_vectors': count,
    'queries': QUERIES,
    'device': device.device_kind,
    'first_sec': seconds[0],
    'wall_sec': float(np.median(seconds[1:])),
    'host_gib': turns.status_bytes('RssAnon') / 2**30,
    'mapped_gib': mapped / 2**30,
    'device_gib': stats.get('peak_bytes_in_use', 0) / 2**30,
  }
  progress.console().print(
    f'{count:,} x {DIMENSION} bfloat16 vectors on {result["device"]}: '
    f'{result["wall_sec"]:.2f} s for {QUERIES} queries '
    f'({QUERIES / result["wall_sec"]:.1f}/s; the first time '
    f'{result["first_sec"]:.2f} s), {result["host_gib"]:.2f} GiB of host memory, '
    f'{result["mapped_gib"]:.2f} GiB of the mapped file in memory, '
    f'{result["device_gib"]:.2f} GiB on the device',
    highlight=False,
    soft_wrap=True,
  )
  return result
