# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""TREC's files out and in; malformed ones are told by line."""

import gzip

import numpy as np
import pytest

from retrieval.questions import trec_files

RUN = {'q1': [('a:0-9', 2.5), ('b%20c:0-4', 0.1)], 'q2': [('d', -1.0)]}


def test_a_run_comes_back(tmp_path):
  path = tmp_path / 'made' / 'x.run'
  trec_files.write_run(path, RUN, 'bm25')
  assert path.read_text().splitlines() == [
    'q1 Q0 a:0-9 1 2.5 bm25',
    'q1 Q0 b%20c:0-4 2 0.100000001 bm25',
    'q2 Q0 d 1 -1 bm25',
  ]
  found = trec_files.read_run(path)
  assert {q: [b for b, _ in x] for q, x in found.items()} == {
    'q1': ['a:0-9', 'b%20c:0-4'],
    'q2': ['d'],
  }
  again = tmp_path / 'again.run'
  trec_files.write_run(again, found, 'bm25')
  assert again.read_bytes() == path.read_bytes()
  packed = tmp_path / 'x.run.gz'
  packed.write_bytes(gzip.compress(b'\n' + path.read_bytes()))
  assert trec_files.read_run(packed) == found


def test_equal_scores_keep_their_order(tmp_path):
  rng = np.random.default_rng(0)
  for value in (0.0, 7.0, -1e6):
    blocks = [str(i) for i in rng.permutation(50)]
    path = tmp_path / 'x.run'
    trec_files.write_run(path, {'q': [(b, value) for b in blocks]}, 'x')
    assert [b for b, _ in trec_files.read_run(path)['q']] == blocks


def test_the_order_read_is_that_of_trec_eval(tmp_path):
  path = tmp_path / 'x.run'
  rows = {'a': '1.0', 'c': '1.0', 'b': '1.0000000001', 'd': '2e0', 'e': '.5'}
  path.write_text(
    ''.join(f'q Q0 {b} 1 {s}\tx\n' for b, s in rows.items()), 'utf-8'
  )
  order = [b for b, _ in trec_files.read_run(path)['q']]
  assert order == ['d', 'c', 'b', 'a', 'e']
  trec_eval = pytest.importorskip('pytrec_eval')
  theirs = trec_eval.RelevanceEvaluator(
    {'q': {'b': 1}}, {'recip_rank'}
  ).evaluate({'q': {b: float(s) for b, s in rows.items()}})
  assert theirs['q']['recip_rank'] == pytest.approx(1 / 3)


def test_judgments_come_back(tmp_path):
  path = tmp_path / 'x.qrels'
  qrels = {'q1': {'a': 1, 'b': 0}, 'q2': {'a': 2, 'c': -1}}
  trec_files.write_qrels(path, qrels)
  assert path.read_text().splitlines()[0] == 'q1 0 a 1'
  assert trec_files.read_qrels(path) == qrels
  beir = tmp_path / 'beir.tsv'
  beir.write_text('query-id\tcorpus-id\tscore\r\nq1\ta\t1\r\nq1\tb c\t0\r\n')
  assert trec_files.read_qrels(beir) == {'q1': {'a': 1, 'b%20c%': 0}}
  names = ['b c', 'b%20c', 'b%20c%', 'b%2520c%', 'b\tc', 'b%26']
  ours = [trec_files.identifier(name) for name in names]
  assert len({*ours}) == len(names) and ours[-1] == 'b%26'
  assert not any(' ' in name or '\t' in name for name in ours)
  run = {'q1': [('c', 3.0), ('a', 2.0), ('b', 1.0)], 'q2': [('a', 1.0)]}
  grades, ideal = trec_files.relevance(run, qrels, ['q2', 'q0', 'q1'], 2)
  assert grades.tolist() == [[2, 0], [0, 0], [0, 1]]
  assert ideal.tolist() == [[2], [0], [1]]
