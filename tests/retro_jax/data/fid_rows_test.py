# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows of a Fusion-in-Decoder: who reads the question, and what is written."""

import dataclasses

import numpy as np
import pytest

from retrieval import tokenization
from retrieval.questions import dpr_json
from retro_jax.data import qa_rows
from retro_jax.decoding import decode, drawing
from retro_jax.nn import fid, retro as model_lib
from tests.retro_jax.nn import tiny

M, R = 6, 48
PASSAGES = (
  dpr_json.Context(title='Moon', text='seven lanterns'),
  dpr_json.Context(title='', text=' '),
  dpr_json.Context(title='River', text='a bridge ' * 20),
)


@pytest.fixture(scope='module')
def tokenizer(root):
  return tokenization.load_tokenizer(root / 'tokenizer')


def _writer(tokenizer, count=3, kind=qa_rows.FidWriter):
  layout = qa_rows.QaLayout(
    chunk_length=M,
    neighbor_length=R,
    prompt_chunks=1,
    answer_length=M,
    num_neighbors=count,
  )
  return kind(layout, tokenizer)


def _texts(tokenizer, row):
  tokens, mask = row['neighbors'][0], row['neighbor_mask'][0]
  return [tokenizer.decode(t[m]) for t, m in zip(tokens, mask, strict=True)]


def test_each_passage_has_the_question_and_the_decoder_has_not(tokenizer):
  row = _writer(tokenizer).row(' who? ', 'queen', PASSAGES)
  first, second, third = _texts(tokenizer, row)
  assert first == 'question: who? title: Moon context: seven lanterns'
  assert second.startswith('question: who? title: River context: a bridge')
  assert row['neighbor_mask'][0, 1].all() and third == ''
  there = row['segment_ids'] > 0
  np.testing.assert_array_equal(there[: M - 1], False)
  assert row['tokens'][M - 1] == tokenizer.bos_id and there[M - 1]
  answer = row['targets'][row['loss_mask']]
  assert tokenizer.decode(answer[:-1]) == ' queen'
  assert answer[-1] == tokenizer.eos_id
  # Nothing but BOS and the answer is read; the second chunk has no passage.
  np.testing.assert_array_equal(
    row['tokens'][there], [tokenizer.bos_id, *answer]
  )
  assert not row['neighbor_mask'][1].any()


@pytest.mark.parametrize('passages', [(), PASSAGES[1:2]])
def test_without_passages_the_question_is_read_alone(tokenizer, passages):
  row = _writer(tokenizer, 2).row('who?', 'queen', passages)
  assert _texts(tokenizer, row) == ['question: who?', '']


def test_cached_decoding_writes_what_whole_rows_make_likeliest(tokenizer):
  """A batch of questions with three, one and no passages."""
  c = tiny.config(
    vocab_size=tokenizer.vocab_size,
    num_layers=2,
    cca_layers=(),
    tie_readout=False,
  )
  c = dataclasses.replace(c, **fid.fields(2, M, R))
  params = tiny.params(c)
  writer = _writer(tokenizer)
  sampling = drawing.SamplingConfig(
    max_new_tokens=M, temperature=0.0, align_prompt=True, num_neighbors=3
  )
  questions = [('who?', PASSAGES), ('what?', PASSAGES[:1]), ('x?', ())]
  written = decode.sample(
    model_lib.Retro(c),
    params,
    [writer.prompt_to_continue(*asked) for asked in questions],
    sampling,
  )
  rows = [writer.row(question, 'x', read) for question, read in questions]
  batch = {k: np.stack([row[k] for row in rows]) for k in rows[0]}
  new = np.stack([sample.new_tokens for sample in written])
  assert new.shape == (3, M)
  batch['tokens'][:, M:] = new[:, :-1]
  segments = batch['segment_ids']
  segments[:, M:] = 1
  logits = tiny.apply(
    c,
    params,
    batch['tokens'],
    batch['neighbors'],
    batch['neighbor_mask'],
    segment_ids=segments,
  )
  np.testing.assert_array_equal(logits[:, M - 1 :].argmax(-1), new)
  assert len(np.unique(new)) > 3  # else any wrong cache would do
