# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Token store and chunks of a tiny corpus."""

import numpy as np
import pytest

from retrieval.text import tokens as tokens_lib
from tests.retrieval.store import tiny_stores


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  root = tmp_path_factory.mktemp('data')
  return tiny_stores.make(root, np.random.default_rng(0))


def test_documents_round_trip_with_titles_and_bytes(data):
  assert data.tokens.num_documents == len(data.documents)
  for i, document in enumerate(data.documents):
    text = f'{document["title"]}\n\n{document["text"]}'
    row = data.tokens.document(i)
    assert row[0] == data.tokenizer.bos_id
    assert data.tokenizer.decode(row) == text
    assert data.tokens.num_bytes[i] == len(text.encode())
    assert data.tokens.num_words[i] == len(text.split())
    assert data.tokens.title(i) == document['title']
    assert data.tokens.document_id(i) == document['id']


def test_chunks_are_spans_of_their_documents(data):
  chunks = data.chunks['all']
  ids = np.arange(chunks.num_chunks)
  documents, starts = chunks.documents(ids), tiny_stores.chunk_starts(chunks)
  lengths = chunks.lengths(ids)
  tokens, mask = chunks.gather(ids, 2 * tiny_stores.M)
  assert (np.diff(documents) >= 0).all()
  seen = [[] for _ in data.documents]
  for i in ids:
    row = data.tokens.document(int(documents[i]))
    want = row[starts[i] : starts[i] + 2 * tiny_stores.M]
    assert mask[i].sum() == len(want) and mask[i][: len(want)].all()
    np.testing.assert_array_equal(tokens[i][mask[i]], want)
    assert (tokens[i][~mask[i]] == 0).all()
    seen[documents[i]].append(row[starts[i] : starts[i] + lengths[i]])
  for i, parts in enumerate(seen):
    np.testing.assert_array_equal(
      np.concatenate(parts), data.tokens.document(i)
    )


def test_missing_chunks_are_masked(data):
  tokens, mask = data.chunks['all'].gather(
    np.array([[0, -1], [-1, 3]]), tiny_stores.M
  )
  assert mask.shape == (2, 2, tiny_stores.M)
  assert not mask[0, 1].any() and not tokens[0, 1].any()
  assert mask[0, 0].any() and mask[1, 1].any()


def test_splits_share_no_document(data):
  documents = {
    split: set(chunks.documents(np.arange(chunks.num_chunks)))
    for split, chunks in data.chunks.items()
  }
  parts = [documents[name] for name in ('train', *tokens_lib.HELD_OUT)]
  assert all(parts) and set.union(*parts) == documents['all']
  assert sum(map(len, parts)) == len(documents['all'])


def test_a_test_split_leaves_the_training_documents_as_they_are():
  hashes = np.random.default_rng(0).integers(0, 2**64, 1000, np.uint64)

  def of(split, valid, test):
    return tokens_lib.in_split(hashes, split, valid, test_fraction=test)

  np.testing.assert_array_equal(of('train', 0.3, 0.0), of('train', 0.1, 0.2))
  assert 70 < of('valid', 0.1, 0.2).sum() < 130
  assert 150 < of('test', 0.1, 0.2).sum() < 250
  assert not of('test', 0.3, 0.0).any()
