# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
import importlib.util

import numpy as np
import pytest

from experiments.benchmarks import sparse
from retrieval.text import corpus


@pytest.fixture
def passages():
  rng = np.random.default_rng(0)
  words = [f'word{i}' for i in range(300)]
  text = ' '.join(rng.choice(words, 20_050))
  return sparse.passages_of([corpus.Document('a', 'Title', text)])


def test_sides_find_the_same_passages(passages, monkeypatch, capsys):
  assert len(passages) == 201 and passages[-1].count(' ') == 49
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  rows = sparse.run(passages, (8, 64), 20, k=5, rounds=1)
  assert [row.name for row in rows if row.build] == ['BM25', 'TF-IDF', 'bm25s']
  assert rows[0].same == {8: 1, 64: 1}
  assert min(rows[2].same.values()) > 0.97
  assert all(row.sec[n][0] > 0 for row in rows[:3] for n in (8, 64))
  sparse.report(rows, 20, 'title')
  shown = capsys.readouterr().out
  assert 'not installed' in shown
  assert 'so many times as fast as bm25s: building' in shown


def test_queries_are_words_in_a_row(passages):
  queries = sparse.queries_of(passages, 50, 8)
  assert len(set(queries)) == 50
  for query in queries:
    assert query.count(' ') == 7
    assert any(query in passage.replace('\n', ' ') for passage in passages)


def test_share_of_wanted_ids():
  wanted = np.array([[3, 1, -1], [4, 5, 6]])
  assert sparse._same(np.array([[1, 7, 3], [4, 0, -1]]), wanted) == 0.6
