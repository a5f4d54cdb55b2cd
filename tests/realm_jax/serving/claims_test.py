# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Batches of claims, and which of their blocks are evidence."""

import numpy as np
import pytest

from realm_jax.data import question_rows, reader_rows
from realm_jax.serving import beams
from retrieval.questions import claims
from retrieval.search import retriever as retriever_lib
from tests.retrieval.text import tiny_blocks

LAYOUT = reader_rows.ReaderLayout(row_length=40, question_length=12)
CLAIMS = (
  claims.Claim('a', 'The mill stood in Paris.', 2, ('Mill 3', 'Nowhere')),
  claims.Claim('b', 'The crown.', 1),
  claims.Claim('c', 'Rome.', 0, ('Mill 5', 'Mill 0')),
)


@pytest.fixture(scope='module')
def made(tmp_path_factory):
  return tiny_blocks.make(
    tmp_path_factory.mktemp('claims'), np.random.default_rng(0), num_documents=8
  )


def _source(made, found=CLAIMS):
  return question_rows.ClaimSource(found, made.tokenizer, LAYOUT)


def test_rows_carry_labels_and_padding_none(made):
  source = _source(made)
  rows = source.rows(np.array([2, 0]), 4)
  np.testing.assert_array_equal(rows['claim_label'], [0, 2, 0, 0])
  np.testing.assert_array_equal(rows['row_valid'], [1, 1, 0, 0])
  assert source.has_answers


def test_evidence_is_every_block_of_a_named_document(made):
  blocks, num = made.blocks, made.blocks.num_blocks
  selector = beams.BeamSelector(
    LAYOUT,
    blocks,
    beams.BeamRetriever(retriever_lib.Random(blocks)),
    search=beams.EvidenceSearch(blocks),
    retriever_beam=num,
    reader_beam=2,
  )
  source = _source(made)
  batch = selector.select(None, source.rows(np.arange(3), 4), source)
  for i, wanted in enumerate(({'Mill 3'}, set(), {'Mill 5', 'Mill 0'}, set())):
    titles = blocks.titles(batch['beam_ids'][i])
    found = [title in wanted for title in titles]
    np.testing.assert_array_equal(batch['beam_has_answer'][i], found)
  assert batch['beam_has_answer'].sum(axis=1).tolist()[1::2] == [0, 0]
  assert batch['beam_has_answer'][0].any() and batch['beam_has_answer'][2].any()
  assert not batch['reader_valid'][3].any()
  assert batch['reader_ids'].shape == (4, 2, 40)
  assert not {'reader_correct'} & set(batch)
