# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Indices of FAISS, an optional package, for the benchmark `search`."""

from collections.abc import Callable
import os
import time

import numpy as np

NAMES = ('FAISS flat', 'FAISS IVF-Flat', 'FAISS IVF-PQ4fs-RFlat', 'FAISS HNSW')
Search = Callable[[np.ndarray], np.ndarray]


def available() -> bool:
  """Return whether FAISS can be imported."""
  try:
    import faiss  # noqa: F401
  except ImportError:
    return False
  return True


def build(
  vectors: np.ndarray, metric: str, k: int
) -> dict[str, tuple[float, float, dict[str, Search]]]:
  """Build FAISS's indices with as many lists as ScaNN has leaves.

  Args:
    vectors: [n, d] float32.
    metric: 'dot_product' or 'squared_l2'.

  Returns:
    name -> (seconds to build, bytes per vector, setting -> search).
  """
  import faiss

  faiss.omp_set_num_threads(len(os.sched_getaffinity(0)))
  # By default FAISS searches few queries in a flat index without BLAS.
  faiss.cvar.distance_compute_blas_threshold = 20
  num_rows, dimension = vectors.shape
  lists = max(1, round(num_rows**0.5))
  probes = [max(1, lists // share) for share in (40, 20, 10, 5)]
  distance = {
    'dot_product': faiss.METRIC_INNER_PRODUCT,
    'squared_l2': faiss.METRIC_L2,
  }[metric]
  hashed = f'IVF{lists},PQ{dimension // 2}x4fs,RFlat'
  recipes = {
    'FAISS flat': ('Flat', None),
    'FAISS IVF-Flat': (f'IVF{lists},Flat', ('nprobe', probes)),
    'FAISS IVF-PQ4fs-RFlat': (hashed, ('nprobe', probes)),
    'FAISS HNSW': ('HNSW32', ('efSearch', [32, 64, 128, 256])),
  }
  built = {}
  for name in NAMES:
    recipe, sweep = recipes[name]
    start = time.monotonic()
    index = faiss.index_factory(dimension, recipe, distance)
    index.train(vectors)
    index.add(vectors)
    sec = time.monotonic() - start
    size = len(faiss.serialize_index(index)) / num_rows
    built[name] = (sec, size, _searches(faiss, index, sweep, k))
  return built


def _searches(faiss, index, sweep, k: int) -> dict[str, Search]:
  if sweep is None:
    return {'': lambda queries: index.search(queries, k)[1]}
  parameter, values = sweep
  space = faiss.ParameterSpace()
  refines = isinstance(faiss.downcast_index(index), faiss.IndexRefine)

  def search(value):
    def run(queries):
      space.set_index_parameter(index, parameter, value)
      if refines:  # score as many rows again as ScaNN does
        space.set_index_parameter(index, 'k_factor_rf', 100 / k)
      return index.search(queries, k)[1]

    return run

  return {f'{parameter}={value}': search(value) for value in values}
