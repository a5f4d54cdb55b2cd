# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Inputs of the loss for blocks by words, by vectors, fused and re-ranked."""

import types

import jax
import numpy as np
import pytest

from realm_jax.data import folder
from realm_jax.trained import beams
from retrieval import searchers
from retrieval.index import text_index
from retrieval.search import fuse, rerank, retriever as retriever_lib
from tests.retrieval.text import tiny_blocks

ASKED = ['the mill of Paris', 'who?', 'the crown in 1066', '']


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  root = tmp_path_factory.mktemp('data')
  return folder.DataFolder(
    tiny_blocks.make(root, np.random.default_rng(0)).root
  )


@pytest.fixture(scope='module')
def words(data):
  index = text_index.TextIndices(data.root, data.blocks).words('bm25')
  return retriever_lib.IndexRetriever(data.blocks, index, 'bm25')


class _Newest(beams.NewestIndex):
  """Vectors of blocks and of questions, drawn at random."""

  def __init__(self, num_blocks):
    rng = np.random.default_rng(0)
    self.vectors = rng.standard_normal((num_blocks, 4)).astype(np.float32)
    self.asked = rng.standard_normal((len(ASKED), 4)).astype(np.float32)
    self.version = types.SimpleNamespace(vectors=self.vectors, step=7)
    self._searcher = searchers.ExactSearcher(self.vectors)

  def embed(self, params, rows):
    assert (params, rows) == ('params', {})
    return self.asked


class _Lengths:
  """A re-ranker that prefers short passages, and sees no mesh of training."""

  fingerprint, unit = 'lengths', 'letters'

  def score(self, queries, passages):
    assert jax.sharding.get_abstract_mesh().empty
    return [-np.array([len(x) for x in row], np.float32) for row in passages]


def test_scores_by_words_are_scaled(words):
  ids, scores = words.search(ASKED, 3)
  found = beams.BeamRetriever(words, 0.5)({}, {}, ASKED, 3)
  np.testing.assert_array_equal(found.ids, ids)
  there = ids >= 0
  given = found.fields['beam_scores']
  np.testing.assert_allclose(given[there], 0.5 * scores[there])
  np.testing.assert_array_equal(found.scores[there], given[there])
  assert not given[~there].any() and (~there).any()


def test_blocks_by_vectors_come_with_them(data):
  newest = _Newest(len(data.blocks))
  dense = retriever_lib.Dense(data.blocks, newest)
  found = beams.BeamRetriever(dense, newest=newest)('params', {}, ASKED, 4)
  ids, scores = newest.search(newest.asked, 4)
  np.testing.assert_array_equal(found.ids[:3], ids[:3])
  np.testing.assert_array_equal(found.scores[:3], scores[:3])
  vectors = found.fields['beam_vectors']
  np.testing.assert_array_equal(vectors[:3], newest.vectors[ids[:3]])
  assert (found.ids[3] == -1).all()  # padding finds nothing
  assert found.fields['index_step'].tolist() == [7] * 4
  assert 'beam_scores' not in found.fields


def test_fused_lists_have_their_own_scores(data, words):
  newest = _Newest(len(data.blocks))
  fused = fuse.Fused(retriever_lib.Dense(data.blocks, newest), words)
  found = beams.BeamRetriever(fused, newest=newest)('params', {}, ASKED, 3)
  dense = newest.search(newest.asked, fuse.CANDIDATES)
  want = fuse.fused([dense, words.search(ASKED, fuse.CANDIDATES)], 3)
  for have, expected in zip((found.ids, found.scores), want, strict=True):
    np.testing.assert_array_equal(have[:3], expected[:3])
  scores = found.fields['beam_scores']
  np.testing.assert_array_equal(scores[:3], want[1][:3])
  assert 'beam_vectors' not in found.fields and 'index_step' in found.fields


@pytest.mark.parametrize('k', [2, 6])
@pytest.mark.parametrize('of_vectors', [True, False])
def test_blocks_in_the_order_of_a_reranker(k, of_vectors, data, words):
  newest = _Newest(len(data.blocks)) if of_vectors else None
  inner = retriever_lib.Dense(data.blocks, newest) if of_vectors else words
  plain = beams.BeamRetriever(inner, newest=newest)
  reranked = rerank.Reranked(inner, rerank.ByTexts(_Lengths(), data.blocks), 4)
  retriever = beams.BeamRetriever(reranked, newest=newest)
  assert retriever.reranker == reranked.fingerprint and not plain.reranker
  first = plain('params', {}, ASKED, 6)
  mesh = jax.make_mesh((2,), ('data',), devices=jax.devices()[:2])
  with jax.set_mesh(mesh):
    found = retriever('params', {}, ASKED, k)
  [name] = {'beam_vectors', 'beam_scores'} & {*found.fields}
  for b, ids in enumerate(first.ids):
    lengths = [len(x) for x in data.blocks.full_texts(ids[:4])]
    there = int((ids[:4] >= 0).sum())
    order = np.argsort(lengths[:there], kind='stable').tolist()
    order = (order + list(range(there, 6)))[:k]
    np.testing.assert_array_equal(found.ids[b], ids[order])
    # The inputs of the loss go with their blocks.
    wanted = first.fields[name][b][order]
    np.testing.assert_array_equal(found.fields[name][b], wanted)
    scores = found.scores[b][: min(k, there)]
    assert (np.diff(scores) <= 0).all() and np.isfinite(scores).all()
