# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Blocks by words, at random and fused; those by vectors are tested where they train."""

import jax
import ml_collections
import numpy as np
import pytest

from realm_jax.data import folder
from realm_jax.serving import beams
from retrieval.search import (
  bm25,
  fusion,
)
from tests.retrieval.text import tiny_blocks


def test_words_find_blocks_and_scores_are_scaled():
  index = bm25.Bm25.build(['the mill', 'a crown', 'a mill by a mill'], [''] * 3)
  ids, scores = index.search(['mill', 'crown'], 3)
  found = beams.WordRetriever(index, 0.5)({}, {}, ['mill', 'crown'], 3)
  np.testing.assert_array_equal(found.ids, ids)
  given = found.fields['beam_scores']
  np.testing.assert_allclose(given[ids >= 0], 0.5 * scores[ids >= 0])
  assert not given[ids < 0].any() and (ids < 0).any()


@pytest.mark.parametrize('weight', [None, 0.0, 0.25])
def test_hybrids_fuse_the_lists_of_both(weight):
  texts = ['the mill', 'a crown', 'a mill by a mill', 'a river']
  index, asked = bm25.Bm25.build(texts, [''] * 4), []
  ids, scores = np.array([[1, 0, 3]]), np.array([[0.9, 0.5, 0.2]], np.float32)

  def dense(params, rows, questions, k):
    asked.append((params, rows, questions, k))
    fields = {'beam_vectors': ids, 'index_step': np.array([7], np.int32)}
    return beams.Beam(ids, fields, scores)

  found = beams.HybridRetriever(dense, index, weight)({}, {}, ['mill'], 3)
  assert asked == [({}, {}, ['mill'], fusion.CANDIDATES)]
  lists = [(ids, scores), index.search(['mill'], fusion.CANDIDATES)]
  if weight is None:
    want = fusion.by_ranks([x for x, _ in lists], 3)
  else:
    want = fusion.by_scores(lists, (1 - weight, weight), 3)
  np.testing.assert_array_equal(found.ids, want[0])
  np.testing.assert_array_equal(found.fields['beam_scores'], want[1])
  assert found.fields['index_step'] == [7]
  assert 'beam_vectors' not in found.fields and found.scores is None
  if weight == 0.0:
    assert found.ids.tolist() == [[1, 0, 2]]  # ids without a score tie


@pytest.mark.parametrize('k', [2, 5, 9])
def test_random_blocks_are_distinct_and_those_of_the_question(k):
  retrieve = beams.RandomRetriever(5)
  first = retrieve({}, {}, ['who?', 'where?'], k)
  again = retrieve({}, {}, ['where?', 'who?'], k)
  np.testing.assert_array_equal(first.ids, again.ids[::-1])
  for row in first.ids:
    there = row[row >= 0]
    assert len(set(there.tolist())) == len(there) == min(k, 5)
    assert there.max() < 5
  assert (first.ids[0] != first.ids[1]).any()
  assert not first.fields['beam_scores'].any()


class _Lengths:
  """A re-ranker that prefers short passages, and sees no mesh of training."""

  fingerprint = 'lengths'

  def score(self, queries, passages):
    assert jax.sharding.get_abstract_mesh().empty
    return [-np.array([len(x) for x in row], np.float32) for row in passages]


class _Vectors:
  """Finds the first k blocks for any question, each with its vector."""

  def __call__(self, params, rows, texts, k):
    del params, rows
    ids = np.tile(np.arange(k), (len(texts), 1))
    ids[:, -1] = -1
    fields = {
      'beam_vectors': np.where(ids >= 0, ids, 0)[..., None] * np.ones(3),
      'index_step': np.full(len(ids), 7),
    }
    return beams.Beam(ids, fields, -ids.astype(np.float32))


@pytest.mark.parametrize('k', [2, 6])
def test_blocks_in_the_order_of_a_reranker(k, tmp_path):
  blocks = tiny_blocks.make(tmp_path, np.random.default_rng(0)).blocks
  retriever = beams.RerankedRetriever(_Vectors(), _Lengths(), blocks, 4)
  mesh = jax.make_mesh((2,), ('data',), devices=jax.devices()[:2])
  with jax.set_mesh(mesh):
    found = retriever({}, {}, ['who?', ''], k)
  first = range(3 if k < 4 else 4)  # the search leaves its last column empty
  order = sorted(
    first,
    key=lambda i: len(blocks.titles([i])[0]) + len(blocks.texts([i])[0]),
  )
  want = [*order, *([4, -1] if k == 6 else [])][:k]
  assert found.ids[0].tolist() == want
  vectors = found.fields['beam_vectors'][0, :, 0]
  assert vectors.tolist() == [max(i, 0) for i in want]
  assert found.fields['index_step'].tolist() == [7, 7]
  there = found.scores[0][np.array(want) >= 0]
  assert (np.diff(there) <= 0).all() and np.isfinite(there).all()
  assert np.isneginf(found.scores[1]).all()  # padding is not read


def test_a_section_of_the_config_names_the_reranker(monkeypatch, tmp_path):
  made = tiny_blocks.make(tmp_path, np.random.default_rng(0))
  data = folder.DataFolder(made.root)
  monkeypatch.setattr(beams.rerankers, 'load', lambda path: _Lengths())
  config = ml_collections.ConfigDict({'retriever': 'random'})
  plain = beams.make_retriever(config, data, None)
  assert isinstance(plain, beams.RandomRetriever)
  config.reranker = {'path': 'runs/cross', 'candidates': 5}
  found = beams.make_retriever(config, data, None)
  assert isinstance(found, beams.RerankedRetriever)
  ids = found({}, {}, ['who?'], 3).ids
  assert {*ids[0]} <= {*plain({}, {}, ['who?'], 5).ids[0]}
  config.reranker.candidates = 6
  assert (
    beams.make_retriever(config, data, None).fingerprint != found.fingerprint
  )
