# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Lists in the order of a re-ranker against slow loops."""

import numpy as np
import pytest

from retrieval.search import (
  queries as queries_lib,
  rerank,
  retriever as retriever_lib,
)
from retrieval.text import passages as passages_lib


class Overlap:
  """Scores by the letters that query and passage share."""

  unit = 'shared letters'

  def __init__(self, fingerprint='overlap'):
    self.fingerprint, self.asked = fingerprint, 0

  def score(self, queries, passages):
    self.asked += sum(map(len, passages))
    return [
      np.array([len({*query} & {*x}) for x in found], np.float32)
      for query, found in zip(queries, passages, strict=True)
    ]


def _slow(queries, ids, text_of, candidates):
  """Ids and scores, one query after the other."""
  rows, values, scorer = [], [], Overlap()
  for query, row in zip(queries, ids.tolist(), strict=True):
    there = [i for i in row if i >= 0]
    head = [
      (-float(scorer.score([query], [[text_of(i)]])[0][0]), rank, i)
      for rank, i in enumerate(there[:candidates])
    ]
    head.sort()
    tail = there[candidates:]
    last = -head[-1][0] if head else 0
    own = [-x[0] for x in head] + [last - n for n in range(1, len(tail) + 1)]
    missing = len(row) - len(there)
    rows.append([x[2] for x in head] + tail + [-1] * missing)
    values.append(own + [-np.inf] * missing)
  return rows, values


@pytest.mark.parametrize('candidates', [1, 4, 9])
def test_the_first_candidates_are_ordered_and_the_rest_stays(candidates):
  rng = np.random.default_rng(0)
  words = [''.join(rng.choice(list('abcdefgh'), 4)) for _ in range(30)]
  queries = [''.join(rng.choice(list('abcdefgh'), 3)) for _ in range(70)]
  ids = np.array([rng.permutation(30)[:6] for _ in queries])
  ids[::5, 3:] = -1
  ids[7] = -1
  texts = passages_lib.TextList(words)
  reranked = rerank.Reranked(
    retriever_lib.Random(texts), rerank.ByTexts(Overlap(), texts), candidates
  )
  order, scores = reranked.order(queries_lib.Queries(queries), ids)
  rows, values = _slow(queries, ids, words.__getitem__, candidates)
  np.testing.assert_array_equal(np.take_along_axis(ids, order, 1), rows)
  np.testing.assert_array_equal(scores, values)
  assert (np.diff(scores[np.isfinite(scores).all(1)]) <= 0).all()
