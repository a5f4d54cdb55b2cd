# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
import json
import pathlib
import sys

import numpy as np
import pytest

from experiments.benchmarks import search as benchmark_search
from retrieval.store import store_writer


@pytest.mark.parametrize('metric', ['dot_product', 'squared_l2'])
def test_measures_what_is_installed_and_names_what_is_not(
  metric, monkeypatch, tmp_path, capsys
):
  monkeypatch.setitem(sys.modules, 'faiss', None)
  vectors, queries = benchmark_search.synthetic(2000, 16, 50)
  rows = benchmark_search.run(vectors, queries, metric, 10, rounds=1)
  assert rows[0].name == 'exact' and rows[0].recall == 1
  installed = [row for row in rows if row.search]
  assert all(0.1 < row.recall <= 1 for row in installed)
  assert all(row.per_sec > 0 for row in installed)
  path = tmp_path / 'new' / 'search'
  benchmark_search.report(rows, 'title', 10, str(path))
  shown = capsys.readouterr().out
  assert shown.count('not installed') == 4 + ('ScaNN' not in shown)
  results = json.loads(pathlib.Path(f'{path}.json').read_text())
  assert len(results['rows']) == len(installed)
  assert 'FAISS flat' in results['not_installed']
  assert pathlib.Path(f'{path}.png').stat().st_size > 1000


def row(name, recall, sec):
  return benchmark_search.MeasuredSearcher(
    name, '', len, 0, 0, [sec], [sec], recall
  )


def test_ratio_compares_the_fastest_of_equal_recall():
  rows = [
    row('exact', 1, 2),
    row('FAISS flat', 1, 3),
    row('ScaNN', 0.96, 0.5),
    row('ScaNN', 0.985, 1),
    row('FAISS HNSW', 0.97, 1),
    row('FAISS HNSW', 0.98, 1.5),
  ]
  found = benchmark_search.ratios(rows)
  assert found['exact / FAISS flat'] == 1.5
  assert found['ScaNN / FAISS, recall >= 0.95'] == 2
  assert found['ScaNN / FAISS, recall >= 0.98'] == 1.5
  assert 'ScaNN / FAISS, recall >= 0.99' not in found


def test_reads_arrays_and_stores(tmp_path):
  vectors = np.ones((5, 3), np.float16)
  np.save(tmp_path / 'v.npy', vectors)
  writer = store_writer.StoreWriter(tmp_path / 'v', 'vectors', {})
  writer.write(0, {'vectors': vectors})
  writer.publish(1)
  for name in ('v.npy', 'v'):
    found = benchmark_search.read(str(tmp_path / name))
    np.testing.assert_array_equal(found, vectors)
    assert found.dtype == np.float32
  with pytest.raises(ValueError, match='no such file'):
    benchmark_search.read(str(tmp_path / 'w.npy'))
