# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The package by its public names alone."""

import subprocess
import sys

import numpy as np
import pytest

import retrieval
from tests.retrieval.index import joined_index_test, neighbors_test


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """A data folder with an exact index of letter counts."""
  root, letters = tmp_path_factory.mktemp('x'), neighbors_test.LetterEmbedder()
  return joined_index_test.make(root, 0, letters)


@pytest.fixture(scope='module')
def index(folder):
  letters = neighbors_test.LetterEmbedder()
  return retrieval.open_index(folder, embedder=letters)


def test_texts_find_themselves(index):
  first = index.search(index.searcher._vectors[:3], 1)
  texts = [row[0] for row in first.texts]
  found = index.search(texts, 2)
  assert found.ids.shape == found.scores.shape == (3, 2)
  np.testing.assert_allclose(found.scores[:, 0], 0, atol=1e-6)
  np.testing.assert_array_less(found.scores[:, 1], 1e-6)
  assert [row[0] for row in found.texts] == texts
  assert found.queries == texts
  assert all(isinstance(t, str) for row in found.titles for t in row)


def test_texts_are_questions(folder):
  class Asks(neighbors_test.LetterEmbedder):
    def embed_queries(self, texts):
      return self.embed_texts([f'ask {text}' for text in texts])

  found = retrieval.open_index(folder, embedder=Asks()).search(['a river'], 3)
  vectors = Asks().embed_queries(['a river'])
  expected = retrieval.open_index(folder / 'index').search(vectors, 3)
  np.testing.assert_array_equal(found.scores, expected.scores)


def test_vectors_need_no_embedder(folder):
  alone = retrieval.open_index(folder / 'index')
  vectors = np.asarray(alone.searcher._vectors[:4])
  found = alone.search(vectors, 1)
  assert found.ids[:, 0].tolist() == [0, 1, 2, 3] or not found.scores.any()
  assert found.texts is None and found.titles is None
  same = alone.search(vectors.tolist(), 1)
  np.testing.assert_array_equal(same.ids, found.ids)
  assert alone.search(vectors[:0], 1).ids.shape == (0, 1)
  with pytest.raises(ValueError, match='holds vectors alone'):
    alone.search(['a text'], 1)


def test_blank_texts_and_more_than_all_rows(index):
  found = index.search(['  ', 'a'], len(index))
  assert (found.ids[0] == -1).all() and np.isneginf(found.scores[0]).all()
  assert found.texts[0] == [''] * len(index)
  assert (found.ids[1] >= 0).all()
  assert index.search(['a']).ids.shape == (1, min(10, len(index)))
  one = index.search('a', 2)
  np.testing.assert_array_equal(one.ids, index.search(['a'], 2).ids)
  assert one.queries == ['a']


def test_shows_itself_as_escaped_tables(index):
  shown = index.search(['<b>', 'c'], 2)._repr_html_()
  assert shown.count('<table>') == 2 and shown.count('<tr>') == 6
  assert '&lt;b&gt;' in shown and '<b>' not in shown


def test_a_distance_is_shown_as_one(index):
  found = index.search(['c'], 2)
  assert found.unit == 'squared L2 distance' and found.scores[0, 1] < 0
  told = f'{-found.scores[0, 1]:.4f}'
  _, heads, _, second = repr(found).splitlines()
  assert heads.split()[:4] == ['id', *found.unit.split()]
  assert second.split()[1] == told and f'<td>{told}</td>' in found._repr_html_()


@pytest.mark.usefixtures('unchecked')
def test_errors(folder, index, tmp_path):
  with pytest.raises(FileNotFoundError, match='no index here.*build_index'):
    retrieval.open_index(tmp_path)
  for k in (0, -1, 2.5, '2', len(index) + 1):
    with pytest.raises(ValueError, match='^k='):
      index.search(['a text'], k)
  for queries in (
    5,
    b'text',
    {'a': 1},
    ['a', 5],
    [5, 'a'],
    np.int64(5),
    ['a\ud800'],
    None,
  ):
    with pytest.raises(ValueError, match='^[qQ]ueries'):
      index.search(queries, 2)
  for vectors in (np.zeros((2, 3)), np.zeros(16), np.full((1, 16), np.nan)):
    with pytest.raises(ValueError, match=r'expected \[batch, 16\]|Query 0'):
      index.search(vectors)
  other = neighbors_test.LetterEmbedder()
  other.fingerprint = 'other letters'
  with pytest.raises(ValueError, match='embedded with letters'):
    retrieval.open_index(folder, embedder=other).search(['a text'])


_LAZY = """
import sys
import retrieval
ours = {n for n in sys.modules if n.startswith('retrieval.')}
assert ours <= {'retrieval.lazy'} and {*retrieval.__all__} <= {*dir(retrieval)}
"""


@pytest.mark.slow
def test_names_load_on_use():
  subprocess.run([sys.executable, '-c', _LAZY], check=True)
  assert all(getattr(retrieval, name) for name in retrieval.__all__)
  with pytest.raises(AttributeError, match='no attribute .nothing'):
    retrieval.nothing  # noqa: B018


def test_a_long_result_is_cut_where_it_shows_itself(index):
  found = index.search(index.searcher._vectors[:60], 1)
  assert str(found).count('\n') > 100
  *first, last = repr(found).splitlines()
  assert len(first) == 39 and str(found).startswith('\n'.join(first))
  assert last.startswith('... 200 more lines')
