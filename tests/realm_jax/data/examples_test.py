# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows of word pieces, against plain concatenation."""

import numpy as np
import pytest

from realm_jax.data import examples
from tests.retrieval.text import tiny_blocks

C, S, M, P = 2, 3, 4, 0
LAYOUT = examples.Layout(
  query_length=8,
  block_length=12,
  num_candidates=3,
  max_targets=2,
  cls_id=C,
  sep_id=S,
  mask_id=M,
  pad_id=P,
)


@pytest.fixture(scope='module')
def blocks(tmp_path_factory):
  root = tmp_path_factory.mktemp('blocks')
  made = tiny_blocks.make(root, np.random.default_rng(0), max_length=20)
  return made.blocks


def _row(ids, types, length):
  pad = length - len(ids)
  return (ids + [P] * pad, [True] * len(ids) + [False] * pad, types + [0] * pad)


def test_blocks_are_headed_by_their_titles_and_null_is_empty(blocks):
  ids = np.asarray([0, examples.NULL, 5, examples.NONE])
  rows, mask, types = examples.titled_blocks(LAYOUT, blocks, ids)
  empty = ([C, S, S], [0, 0, 1])
  for i, row in enumerate(ids):
    want = _row(*empty, 12)
    if row >= 0:
      title = blocks.gather_titles(ids[i : i + 1], 99)
      title = title[0][0, : int(title[1][0])].tolist()
      body = blocks.gather(ids[i : i + 1], 9 - len(title))
      body = body[0][0, : int(body[1][0])].tolist()
      kinds = [0] * (len(title) + 2) + [1] * (len(body) + 1)
      want = _row([C, *title, S, *body, S], kinds, 12)
    assert (rows[i].tolist(), mask[i].tolist(), types[i].tolist()) == want


def test_joint_rows_hold_query_and_body_without_title(blocks):
  ids = np.asarray([[examples.NULL, 3, examples.NONE]])
  query = np.asarray([[9, M, 8, P, P, P]])
  batch = examples.candidates(LAYOUT, blocks, ids, query, np.asarray([3]))
  assert batch['joint_ids'].shape == (1, 3, 20)
  null = [C, 9, M, 8, S, S]
  for i in (0, 2):
    assert batch['joint_ids'][0, i].tolist() == null + [P] * 14
    assert batch['joint_types'][0, i, :7].tolist() == [0] * 5 + [1, 0]
  body, count = blocks.gather(ids[0, 1:2], 10)
  body = body[0, : int(count[0])].tolist()
  want = _row([*null[:-1], *body, S], [0] * 5 + [1] * (len(body) + 1), 20)
  found = (batch[f'joint_{x}'][0, 1].tolist() for x in ('ids', 'mask', 'types'))
  assert tuple(found) == want
  assert batch['candidate_valid'].tolist() == [[True, True, False]]
  assert batch['candidate_block_ids'].tolist() == ids.tolist()


def test_masked_sentences_know_their_targets():
  tokens = np.asarray([11, 12, 13, 14])
  made = examples.mask_sentence(LAYOUT, tokens, np.asarray([1, 2, 3]))
  # All three are masked, the first two are predicted.
  assert made['sentence'].tolist() == [11, M, M, M, P, P]
  assert made['mlm_positions'].tolist() == [2, 3]
  assert made['mlm_targets'].tolist() == [12, 13]
  assert made['mlm_mask'].tolist() == [True, True]
  query = examples.queries(
    LAYOUT, made['sentence'][None], made['sentence_count'][None]
  )
  ids = query['query_ids'][0]
  assert (ids[made['mlm_positions']] == M).all() and ids[0] == C
  made = examples.mask_sentence(LAYOUT, tokens, np.asarray([0]))
  assert made['mlm_mask'].tolist() == [True, False]
  assert made['mlm_positions'].tolist() == [1, 0]
