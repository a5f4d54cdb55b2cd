# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows of DPR against loops; passages of a store and of texts."""

import numpy as np
import pytest

from realm_jax.data import examples
from realm_jax.objectives import dpr
from retrieval.questions import question_files
from tests.retrieval.text import tiny_blocks


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  root = tmp_path_factory.mktemp('data')
  made = tiny_blocks.make(root, np.random.default_rng(0), num_documents=12)
  made.layout = examples.Layout(
    query_length=8, block_length=24, **made.special_ids
  )
  return made


def _examples(passages, count=10):
  questions = [
    question_files.Question(f'q{i}', 'The river ' * (i % 4 + 1), ('Paris',))
    for i in range(count)
  ]
  positives = np.arange(count) % 5
  negatives = np.stack([positives + 1, np.full(count, -1)], axis=1)
  return dpr.Examples(questions, positives, negatives, passages, 'f')


def test_rows(data):
  found = _examples(data.blocks)
  encode = data.tokenizer.encode_ids_batch
  numbers = np.array([3, 0, 8])
  rows = dpr.read_rows(data.layout, found, encode, numbers)
  assert rows['block_valid'].tolist() == [[True, True, False]] * 3
  texts = [found.questions[i].question for i in numbers]
  for row, mask, ids in zip(
    rows['query_ids'], rows['query_mask'], encode(texts, 8), strict=True
  ):
    assert row[mask].tolist() == ids
    assert (row[~mask] == data.tokenizer.pad_id).all()
  assert rows['query_mask'].sum(axis=1).tolist() == [8, 4, 4]
  for at, i in np.ndenumerate(found.positives[numbers]):
    for p, block in ((0, i), (1, i + 1)):
      expected = examples.titled_blocks(
        data.layout, data.blocks, np.array([block])
      )
      for name, row in zip(('ids', 'mask', 'types'), expected, strict=True):
        np.testing.assert_array_equal(rows[f'block_{name}'][at][p], row[0])
      found_hash = rows['block_hash'][at][p].view(np.uint64)
      assert found_hash == data.blocks.hashes(np.array([block]))
