# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
from experiments.benchmarks import search, shards


def test_measures_each_case_in_a_process_of_its_own(
  monkeypatch, tmp_path, capsys
):
  cases = [
    {'searcher': 'exact', 'shards': 1},
    {'searcher': 'int8', 'shards': 3},
  ]
  monkeypatch.setattr(shards, 'cases', lambda: cases)
  rows, queries = search.synthetic(1500, 16, 30)
  found = shards.run(rows, queries, tmp_path, k=5, rounds=1, dtype='bfloat16')
  assert [row['held'] for row in found] == [1, 1, 3]
  assert [row['bytes_per_vector'] for row in found] == [64, 20, 20]
  for row in found:
    assert row['recall'] == 1 and row['queries_per_sec'] > 0
    assert row['peak_mib'] > 0
  shards.report(found, 'title', 5)
  assert 'int8' in capsys.readouterr().out
