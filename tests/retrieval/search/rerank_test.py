# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Lists in the order of a re-ranker against slow loops."""

import numpy as np
import pytest

from retrieval.index import text_index
from retrieval.search import (
  queries as queries_lib,
  rerank,
  retriever as retriever_lib,
)
from retrieval.text import passages as passages_lib
from tests.retrieval.store import tiny_stores


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


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  root = tmp_path_factory.mktemp('data')
  made = tiny_stores.make(root, np.random.default_rng(0))
  made.words = text_index.TextIndices(root, made.chunks['train']).words('bm25')
  return made


def _retriever(data, reranker, candidates):
  train = data.chunks['train']
  inner = retriever_lib.IndexRetriever(train, data.words, 'bm25')
  by_texts = rerank.ByTexts(reranker, train)
  return inner, rerank.Reranked(inner, by_texts, candidates)


@pytest.mark.parametrize('split', ['train', 'valid'])
def test_neighbors_are_those_of_the_source_in_another_order(data, split):
  queries, train = data.chunks[split], data.chunks['train']
  inner, retriever = _retriever(data, Overlap(), 6)
  rows = slice(0, 5)
  asked = queries_lib.ChunkQueries(queries, queries.ids(0, rows))
  found, _ = inner.search(asked, 6)
  texts = asked.texts

  def text_of(i):
    tokens, mask = train.gather(np.array([i]), 2 * train.chunk_length)
    return data.tokenizer.decode(tokens[0][mask[0]])

  want, values = _slow(texts, found, text_of, 6)
  ids, scores = retriever.search(asked, 3)
  np.testing.assert_array_equal(ids, np.array(want)[:, :3])
  np.testing.assert_array_equal(scores, np.array(values, np.float32)[:, :3])
  own = queries.document_hashes(queries.ids(0, rows))[:, None]
  assert (train.document_hashes(np.maximum(ids, 0)) != own)[ids >= 0].all()
  assert (ids != found[:, :3]).any()
  again, _ = retriever.search([*texts, ' '], 3)
  assert (again[-1] == -1).all() and (again[:-1] >= 0).any()
