# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows whose chunks ask for candidates."""

import itertools

import numpy as np
import pytest

from retrieval import tokenization
from retro_jax.data import candidate_rows
from tests.retro_jax.data import tiny_data

C, Q, K, T = 4, 2, 3, 6


def _letters(texts):
  """One id for each character, between 1 and 2."""
  return [[1, *map(ord, text), 2] for text in texts]


def _dataset(root, split='train', seed=0, queries=Q):
  return candidate_rows.make_dataset(
    tiny_data.reader(root, split, k=0),
    split,
    queries=queries,
    sequence_chunks=C,
    batch_size=2,
    seed=seed,
  )


def _complete(root, batch):
  readers = {s: tiny_data.reader(root, s, k=K) for s in candidate_rows.SPLITS}
  tokenizer = tokenization.load_tokenizer(root / 'tokenizer')
  found = candidate_rows.CandidateReader(readers, _letters, T)
  return readers, tokenizer, found.complete(batch)


@pytest.mark.parametrize('split', candidate_rows.SPLITS)
def test_texts_and_neighbors_are_those_of_the_chunks(root, split):
  batch = next(iter(_dataset(root, split)))
  readers, tokenizer, found = _complete(root, batch)
  reader = readers[split]
  stores, want = reader.stores, reader.read(batch['chunk_ids'])
  for name, values in want.items():
    np.testing.assert_array_equal(found[name], values)

  def pieces(chunks, number):
    (text,) = chunks.texts(np.array([number]))
    ids = [1, *map(ord, text), 2]
    return ids if len(ids) <= T else [*ids[: T - 1], 2]

  seen = 0
  for b, q in itertools.product(range(2), range(Q)):
    at = batch['asked'][b, q]
    if at < 0:
      assert not found['candidate_valid'][b, q].any()
      continue
    chunk = batch['chunk_ids'][b, at]
    ids = stores.neighbors.ids(np.array(chunk))
    np.testing.assert_array_equal(found['candidate_valid'][b, q], ids >= 0)
    texts = [('query', (b, q), stores.chunks, chunk)] + [
      ('candidate', (b, q, k), stores.datastore, ids[k])
      for k in range(K)
      if ids[k] >= 0
    ]
    for name, place, chunks, number in texts:
      length = found[f'{name}_lengths'][place]
      row = found[f'{name}_ids'][place]
      assert row[:length].tolist() == pieces(chunks, number)
      assert not row[length:].any()
      seen += 1
  assert seen > 4


def test_chunks_that_nothing_follows_do_not_ask(root):
  reader = tiny_data.reader(root, k=0)
  rows = itertools.islice(iter(_dataset(root)), 12)
  asked = 0
  for batch in rows:
    for ids, at in zip(batch['chunk_ids'], batch['asked'], strict=True):
      kept = ids[at[at >= 0]]
      assert len({*kept}) == len(kept)
      documents = reader.stores.chunks.documents(kept)
      np.testing.assert_array_equal(
        documents, reader.stores.chunks.documents(kept + 1)
      )
      asked += len(kept)
  assert asked > 12


def test_each_pass_draws_other_chunks_and_the_seed_repeats_them(root):
  def drawn(seed):
    number = -(-tiny_data.reader(root, k=0).num_chunks // C)
    rows = itertools.islice(iter(_dataset(root, seed=seed, queries=1)), number)
    found = {}
    for batch in rows:
      for ids, at in zip(batch['chunk_ids'], batch['asked'], strict=True):
        found.setdefault(int(ids[0]), []).append(int(at[0]))
    return found

  first = drawn(0)
  assert first == drawn(0) != drawn(1)
  assert any(len({*asked}) > 1 for asked in first.values())
