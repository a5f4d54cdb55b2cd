# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Search over compressed vectors of tokens against a slow MaxSim."""

import numpy as np
import pytest

from retrieval.search import (
  late_interaction,
  queries as queries_lib,
  token_store,
)
from retrieval.text import passages as passages_lib
from tests.retrieval.search import tiny_encoder

N = 45
ALL = 1000, N  # centroids of each token, and passages that are decompressed
QUERIES = ['word3 word5 word7', 'word1', 'word4 word4 word0 word9']
Words = tiny_encoder.Words


def _texts():
  rng = np.random.default_rng(0)
  return [
    ' '.join(f'word{w}' for w in rng.integers(12, size=rng.integers(1, 9)))
    for _ in range(N)
  ]


TEXTS = _texts()


def _build(path, encoder=None, texts=TEXTS, **more):
  with tiny_encoder.small_shards():
    token_store.build(
      path, encoder or Words(), passages_lib.TextList(texts), **more
    )
  return path


@pytest.fixture(scope='module')
def path(tmp_path_factory):
  return _build(tmp_path_factory.mktemp('index') / 'colbert')


def _slow(index, query):
  """Scores of all blocks, one token after the other."""
  scores = []
  for block, vectors in enumerate(tiny_encoder.vectors_of(index)):
    assert len(vectors) == len(TEXTS[block].split())
    best = [max(float(q @ v) for v in vectors) for q in query]
    scores.append(sum(best))
  return np.asarray(scores)


@pytest.mark.parametrize('all_candidates', [True, False])
def test_an_unpruned_search_equals_a_slow_max_sim(path, all_candidates):
  search = ALL if all_candidates else (1, 1)
  index = late_interaction.LateInteraction(path, Words(), *search)
  finder = index if all_candidates else index.unpruned()
  ids, scores = finder.search([*QUERIES, ' '], N + 3)
  assert (ids[-1] == -1).all() and np.isneginf(scores[-1]).all()
  few, best = finder.search(QUERIES, 4)
  np.testing.assert_array_equal(few, ids[:-1, :4])
  np.testing.assert_allclose(best, scores[:-1, :4], rtol=1e-6)
  for row, query in enumerate(Words().queries(QUERIES)):
    wanted = _slow(index, query)
    order = np.argsort(-wanted, kind='stable')
    np.testing.assert_allclose(scores[row, :N], wanted[order], rtol=1e-5)
    np.testing.assert_allclose(wanted[ids[row, :N]], wanted[order], rtol=1e-5)
  assert (ids[:, N:] == -1).all() and np.isneginf(scores[:, N:]).all()
  assert ids.dtype == np.int64 and scores.dtype == np.float32


def test_a_pruned_search_finds_the_best_blocks_with_exact_scores(path):
  whole = late_interaction.LateInteraction(path, Words(), *ALL)
  pruned = late_interaction.LateInteraction(path, Words(), 9, 12)
  ids, scores = pruned.search(QUERIES, 12)
  best, _ = whole.search(QUERIES, 5)
  for found, wanted in zip(ids, best, strict=True):
    assert len({*found.tolist()} & {*wanted.tolist()}) >= 4
  again = np.stack(whole.score(queries_lib.Queries(QUERIES), [*ids]))
  np.testing.assert_allclose(scores, again, rtol=1e-6)
  assert pruned.fingerprint != whole.fingerprint


def test_given_blocks_are_scored_in_their_places(path):
  index = late_interaction.LateInteraction(path, Words(), *ALL)
  ids, scores = index.search(QUERIES[:1], N)
  asked = np.array([40, 3, 22, 3])
  twice = queries_lib.Queries([QUERIES[0]] * 2)
  found, none = index.score(twice, [asked, asked[:0]])
  by_id = dict(zip(ids[0].tolist(), scores[0].tolist(), strict=True))
  expected = [by_id[i] for i in asked.tolist()]
  np.testing.assert_allclose(found, expected, rtol=1e-6)
  assert not len(none)
  blank = queries_lib.Queries([''])
  assert np.isneginf(index.score(blank, [asked])[0]).all()


def test_other_models_and_texts_are_refused(path, tmp_path):
  other = Words()
  other.fingerprint = 'other'
  with pytest.raises(
    ValueError, match='encoder: expected .other., found .words.'
  ):
    late_interaction.LateInteraction(path, other)
  with pytest.raises(FileNotFoundError, match='no colbert_tokens store'):
    late_interaction.LateInteraction(tmp_path, Words())
  with pytest.raises(ValueError, match='no passages'):
    _build(tmp_path / 'empty', texts=[])
