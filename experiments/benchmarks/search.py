# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Recall and speed of our searchers and FAISS's.

Vectors and queries are vector stores, or a synthetic mixture on the sphere. Names end
in the share of leaves searched. Recall counts rows that tie with the k-th row of exact
search. "product" is the matrix product alone, without which no exact search is.
"""

import functools
import importlib.util
import os

import numpy as np

from retrieval import searchers
from retrieval.index import vectors as vectors_lib
from retrieval.searchers import recall_check
from retrieval.store import array_store

SIZES = {
  'vectors': '', 'queries': '', 'num_rows': 100_000, 'dimension': 128,
  'num_queries': 500, 'metric': 'dot_product', 'k': 10,
  'exact_only': False,  # whether FAISS's flat index alone is compared
  'faiss_kernel': 'Haswell',  # or Zen, SkylakeX: of its OpenBLAS
}  # fmt: skip
_SHARES = (40, 20, 10, 5, 3)  # one of so many leaves or lists is searched


def prepare(sizes):
  """Write the vectors, the queries and their exact neighbors."""
  n, d, count = (sizes[x] for x in ('num_rows', 'dimension', 'num_queries'))
  if sizes['vectors']:
    paths = sizes['vectors'], sizes['queries']
    stores = (array_store.Store.open(x, vectors_lib.KIND) for x in paths)
    rows, queries = (x.array('vectors')[:].astype(np.float32) for x in stores)
  else:
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((1 + n // 100, d), np.float32)
    rows = centers[rng.integers(0, len(centers), n + count)]
    rows += 1.5 * rng.standard_normal(rows.shape, np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows, queries = rows[:n], rows[n:]
  exact = searchers.ExactSearcher(rows, sizes['metric'])
  queries = queries[:count]
  ids, _ = exact.search(queries, sizes['k'])
  np.savez(f'{sizes["folder"]}/top.npz', rows=rows, queries=queries, ids=ids)
  return {}


def _ours(rows, sizes):
  """Yield name and search of each setting."""
  metric = sizes['metric']
  yield 'exact', searchers.ExactSearcher(rows, metric).search

  def product(queries, k):
    for low in range(0, len(rows), 4096):
      rows[low : low + 4096] @ queries.T
    return np.full((len(queries), k), -1), None

  yield 'product', product
  if sizes['exact_only']:
    return
  searcher = searchers.ScannSearcher.build(rows, metric)
  for share in _SHARES:
    leaves = max(1, searcher.settings['num_leaves'] // share)
    how = {'num_leaves_to_search': leaves}
    yield f'ScaNN 1/{share}', functools.partial(searcher.search, **how)


def _faiss(rows, sizes):
  """Yield the same of FAISS's indices, with as many lists as ScaNN has leaves."""
  # The kernels that OpenBLAS takes on a processor it does not know are slow.
  os.environ.setdefault('OPENBLAS_CORETYPE', sizes['faiss_kernel'])
  import faiss

  faiss.omp_set_num_threads(sizes['num_threads'])
  # By default FAISS searches few queries in a flat index without BLAS.
  faiss.cvar.distance_compute_blas_threshold = 20
  (n, d), is_l2 = rows.shape, sizes['metric'] == 'squared_l2'
  metric = faiss.METRIC_L2 if is_l2 else faiss.METRIC_INNER_PRODUCT
  lists, set_ = round(n**0.5), faiss.ParameterSpace().set_index_parameter

  def build(recipe):
    index = faiss.index_factory(d, recipe, metric)
    index.train(rows)
    index.add(rows)
    return index

  flat = build('Flat')
  yield 'flat', lambda queries, k: flat.search(queries, k)[::-1]
  if sizes['exact_only']:
    return
  index = build(f'IVF{lists},PQ{d // 2}x4fs,RFlat')
  for share in _SHARES:

    def search(queries, k, share=share):
      set_(index, 'nprobe', max(1, lists // share))
      set_(index, 'k_factor_rf', 100 / k)  # as many rows as ScaNN scores again
      return index.search(queries, k)[::-1]

    yield f'IVF-PQ4fs 1/{share}', search


def _steps(sizes, settings):
  """Build the indices of a side; return a step for each of their settings."""
  arrays = np.load(f'{sizes["folder"]}/top.npz')
  rows, queries, truth = (arrays[x] for x in ('rows', 'queries', 'ids'))
  exact = searchers.ExactSearcher(rows, sizes['metric'])

  def step(search, answer):
    ids, _ = search(queries, sizes['k'])
    if 'recall' not in answer:  # in the untimed round
      scores = (exact.score(queries, x) for x in (ids, truth))
      answer['recall'] = recall_check.agreement_with_exact(ids, truth, *scores)
    return answer

  return {
    name: functools.partial(step, search, {'items': len(queries)})
    for name, search in settings(rows, sizes)
  }


SIDES = {'ours': functools.partial(_steps, settings=_ours)}
if importlib.util.find_spec('faiss'):
  SIDES['FAISS'] = functools.partial(_steps, settings=_faiss)
