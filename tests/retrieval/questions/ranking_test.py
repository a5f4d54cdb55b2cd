# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures equal a slow reference, and trec_eval on the files that we write."""

import math

import numpy as np
import pytest

from retrieval.questions import ranking, trec_files


def _slow(row, ideal, k):
  """Success@k, R@k, P@k, RR, AP and nDCG@k of one question's grades."""
  ranks = [rank for rank, grade in enumerate(row, start=1) if grade]
  top = [rank for rank in ranks if rank <= k]
  total = sum(grade > 0 for grade in ideal)
  gain = sum(row[rank - 1] / math.log2(1 + rank) for rank in top)
  best = sum(x / math.log2(2 + i) for i, x in enumerate(ideal[:k]))
  precisions = [(i + 1) / rank for i, rank in enumerate(ranks)]
  return (
    float(bool(top)),
    len(top) / total if total else 0.0,
    len(top) / k,
    1 / ranks[0] if ranks else 0.0,
    sum(precisions) / total if total else 0.0,
    gain / best if best else 0.0,
  )


@pytest.mark.parametrize('k', [1, 3, 10, 30])
def test_measures_equal_a_slow_reference(k):
  rng = np.random.default_rng(0)
  grades = rng.integers(0, 4, (40, 12)) * (
    rng.random((40, 12)) < rng.random((40, 1)) ** 3
  )
  others = rng.integers(0, 3, (40, 3))
  ideal = -np.sort(-np.concatenate([grades, others], axis=1))
  names = [f'Success@{k}', f'R@{k}', f'P@{k}', 'RR', 'AP', f'nDCG@{k}']
  found = ranking.measure(grades, ideal, names)
  want = [_slow(*row, k) for row in zip(grades, ideal.tolist(), strict=True)]
  np.testing.assert_allclose(
    np.stack(list(found.values()), 1), want, rtol=1e-12
  )


def test_unknown_measures_are_refused():
  grades = np.array([[0, 0], [1, 1]])
  for name in ('nDCG@0', 'P', 'ndcg@10', 'AP@', 'R@1.5'):
    assert ranking.cut(name) is None
    with pytest.raises(ValueError, match='measure'):
      ranking.measure(grades, grades, [name])


def test_differences_are_paired():
  rng = np.random.default_rng(0)
  first = {'MRR': rng.random(200)}
  better = {'MRR': first['MRR'] + 0.01, 'recall@5': np.ones(200)}
  [found] = ranking.differences(better, first).values()
  assert (found.mean, found.low, found.high) == pytest.approx((0.01,) * 3)
  alone = ranking.intervals(better)['MRR']
  assert alone.high - alone.low > 0.05


_TREC = {
  'recall@1': 'success_1',
  'Success@5': 'success_5',
  'MRR': 'recip_rank',
  'nDCG@10': 'ndcg_cut_10',
  'nDCG': 'ndcg',
  'R@100': 'recall_100',
  'R@5': 'recall_5',
  'P@5': 'P_5',
  'P@30': 'P_30',
  'AP': 'map',
  'AP@10': 'map_cut_10',
}


@pytest.mark.parametrize('tied', [False, True])
def test_measures_equal_trec_eval(tmp_path, tied):
  trec_eval = pytest.importorskip('pytrec_eval')
  rng = np.random.default_rng(1)
  names = [f'q{i}' for i in range(40)]
  run, qrels = {}, {}
  for name in names:
    blocks = [f'd{i}' for i in rng.permutation(30)]
    # Many are equal, some at zero; they keep the order they have here.
    scores = np.sort(rng.integers(0, 4, 25) * 1.0)[::-1].tolist()
    run[name] = list(zip(blocks[:25], scores, strict=True))
    grades = rng.integers(-1, 4, 30) * (rng.random(30) < rng.random() ** 2)
    qrels[name] = dict(zip(blocks, grades.tolist(), strict=True))
  trec_files.write_run(tmp_path / 'run', run, 'ours')
  if tied:  # of another system, in trec_eval's order
    rows = ((q, *found) for q, ranked in run.items() for found in ranked)
    lines = [f'{q} Q0 {block} 1 {score} x\n' for q, block, score in rows]
    (tmp_path / 'run').write_text(''.join(lines))
    run = trec_files.read_run(tmp_path / 'run')
  trec_files.write_qrels(tmp_path / 'qrels', qrels)
  with open(tmp_path / 'qrels') as judged, open(tmp_path / 'run') as ranked:
    evaluator = trec_eval.RelevanceEvaluator(
      trec_eval.parse_qrel(judged), trec_eval.supported_measures
    )
    theirs = evaluator.evaluate(trec_eval.parse_run(ranked))
  ours = ranking.measure(
    *trec_files.relevance(run, qrels, names, 25), list(_TREC)
  )
  assert 0.1 < ours['MRR'].mean() < 0.9
  for own, other in _TREC.items():
    want = [theirs[name][other] for name in names]
    np.testing.assert_allclose(ours[own], want, atol=1e-6, err_msg=own)
