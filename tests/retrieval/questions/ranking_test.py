# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures equal a slow reference, and trec_eval on the files that we write."""

import math

import numpy as np
import pytest

from retrieval.questions import ranking, trec_files


def _slow(row, total, k):
  """Recall@k, reciprocal rank and nDCG@k of one question."""
  ranks = [rank for rank, hit in enumerate(row, start=1) if hit]
  gain = sum(1 / math.log2(1 + rank) for rank in ranks if rank <= k)
  best = sum(1 / math.log2(1 + rank) for rank in range(1, min(total, k) + 1))
  return (
    float(any(rank <= k for rank in ranks)),
    1 / ranks[0] if ranks else 0.0,
    gain / best if best else 0.0,
  )


@pytest.mark.parametrize('k', [1, 3, 10, 30])
def test_measures_equal_a_slow_reference(k):
  rng = np.random.default_rng(0)
  relevant = rng.random((40, 12)) < rng.random((40, 1)) ** 3
  total = relevant.sum(axis=1) + rng.integers(0, 4, 40)
  found = zip(
    ranking.recall_at_k(relevant, k),
    ranking.reciprocal_rank(relevant),
    ranking.ndcg(relevant, total, k),
    strict=True,
  )
  want = [_slow(*row, k) for row in zip(relevant, total, strict=True)]
  np.testing.assert_allclose(list(found), want, rtol=1e-12)


def test_what_no_ranking_holds_is_refused():
  relevant = np.array([[False, False], [True, True]])
  with pytest.raises(ValueError, match='Question 1: 2 relevant blocks'):
    ranking.ndcg(relevant, np.array([0, 1]), 10)
  with pytest.raises(ValueError, match='k=0'):
    ranking.ndcg(relevant, np.array([0, 2]), 0)
  with pytest.raises(ValueError, match='k=0'):
    ranking.recall_at_k(relevant, 0)


def test_differences_are_paired():
  rng = np.random.default_rng(0)
  first = {'MRR': rng.random(200)}
  better = {'MRR': first['MRR'] + 0.01, 'recall@5': np.ones(200)}
  [found] = ranking.differences(better, first).values()
  assert (found.mean, found.low, found.high) == pytest.approx((0.01,) * 3)
  alone = ranking.intervals(better)['MRR']
  assert alone.high - alone.low > 0.05


def test_measures_equal_trec_eval(tmp_path):
  trec_eval = pytest.importorskip('pytrec_eval')
  rng = np.random.default_rng(1)
  names = [f'q{i}' for i in range(20)]
  run, qrels = {}, {}
  for name in names:
    blocks = [f'd{i}' for i in rng.permutation(30)]
    # Many are equal, some at zero; they keep the order they have here.
    scores = np.sort(rng.integers(0, 4, 25) * 1.0)[::-1].tolist()
    run[name] = list(zip(blocks[:25], scores, strict=True))
    qrels[name] = {block: int(rng.random() < 0.1) for block in blocks}
  trec_files.write_run(tmp_path / 'run', run, 'ours')
  trec_files.write_qrels(tmp_path / 'qrels', qrels)
  with open(tmp_path / 'qrels') as judged, open(tmp_path / 'run') as ranked:
    evaluator = trec_eval.RelevanceEvaluator(
      trec_eval.parse_qrel(judged), {'success', 'recip_rank', 'ndcg_cut'}
    )
    theirs = evaluator.evaluate(trec_eval.parse_run(ranked))
  relevant, total = trec_files.relevance(run, qrels, names, 25)
  ours = ranking.measure(relevant, total, (1, 5))
  assert 0.1 < ours['MRR'].mean() < 0.9
  for own, other in (
    ('recall@1', 'success_1'),
    ('recall@5', 'success_5'),
    ('MRR', 'recip_rank'),
    ('nDCG@10', 'ndcg_cut_10'),
  ):
    want = [theirs[name][other] for name in names]
    np.testing.assert_allclose(ours[own], want, atol=1e-6)
