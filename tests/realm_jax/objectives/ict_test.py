# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows of the inverse cloze task against loops."""

import dataclasses

import numpy as np
import pytest

from realm_jax.data import examples
from realm_jax.objectives import ict
from tests.retrieval.text import tiny_blocks

Q, T = 6, 12
LAYOUT = examples.Layout(
  query_length=Q, block_length=T, cls_id=1, sep_id=2, mask_id=3
)


def _slow_rows(layout, title, sentences, chosen, removed):
  """The query's and the block's tokens, as lists."""
  query = [1, *sentences[chosen][: layout.query_length - 2], 2]
  body = [
    token
    for i, sentence in enumerate(sentences)
    for token in sentence
    if not (removed and i == chosen)
  ]
  title = title[: layout.block_length - 3]
  body = body[: layout.block_length - 3 - len(title)]
  types = [0] * (len(title) + 2) + [1] * (len(body) + 1)
  return query, [1, *title, 2, *body, 2], types


@pytest.fixture(scope='module')
def blocks(tmp_path_factory):
  """Blocks of some sentences; two documents are equal."""
  rng = np.random.default_rng(0)
  rows = tiny_blocks.documents(12, rng)
  rows[5] = rows[4] | {'id': 'd5'}
  root = tmp_path_factory.mktemp('ict')
  return tiny_blocks.make(root, rng, given=rows, max_length=20).blocks


@pytest.mark.parametrize('block_length', [T, 20])
def test_rows_of_a_store(blocks, block_length):
  layout = dataclasses.replace(LAYOUT, block_length=block_length)
  ids = np.arange(blocks.num_blocks)[::-1].copy()
  rows = ict.read_rows(layout, blocks, ids, np.random.default_rng(0), 0.5)
  counts = np.asarray([len(blocks.sentences(i)) for i in ids.tolist()])
  rng = np.random.default_rng(0)
  chosen, removed = rng.integers(counts), rng.random(len(counts)) < 0.5
  for i, block in enumerate(ids.tolist()):
    tokens, lengths = blocks.gather_sentences(
      np.asarray(blocks.sentences(block)), 20
    )
    sentences = [t[:n].tolist() for t, n in zip(tokens, lengths, strict=True)]
    title, length = blocks.gather_titles(np.asarray([block]), 20)
    title = title[0, : length[0]].tolist()
    found = _slow_rows(layout, title, sentences, chosen[i], removed[i])
    for name, want in zip(
      ('query_ids', 'block_ids', 'block_types'), found, strict=True
    ):
      padding = [0] * (rows[name].shape[1] - len(want))
      assert rows[name][i].tolist() == want + padding, (i, name)
    assert rows['query_mask'][i].sum() == len(found[0])
    assert rows['block_mask'][i].sum() == len(found[1])
  np.testing.assert_array_equal(rows['sentence_removed'], removed)
  np.testing.assert_array_equal(rows['row_valid'], ~removed | (counts > 1))
  assert 0 < removed.sum() < len(ids) and not rows['row_valid'].all()
  hashes = rows['block_hash']
  same = (hashes[:, None] == hashes).all(axis=-1)
  expected = blocks.hashes(ids)
  np.testing.assert_array_equal(same, expected[:, None] == expected)
  assert same.sum() > len(ids)
