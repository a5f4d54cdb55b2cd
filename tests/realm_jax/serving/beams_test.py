# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Blocks by words, at random and fused; those by vectors are tested where they train."""

import numpy as np
import pytest

from realm_jax.serving import beams
from retrieval.index import bm25, fusion


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
