# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows of questions: where "answer:" ends, what is scored, what is read."""

import numpy as np
import pytest

from retrieval import tokenization
from retrieval.questions import dpr_json
from retro_jax.data import qa_rows
from retro_jax.decoding import decode, drawing
from retro_jax.nn import fid, retro as model_lib
from tests.retro_jax.nn import tiny

M, R = 40, 24
PASSAGES = (
  dpr_json.Context(title='Moon', text='the moon has seven lanterns'),
  dpr_json.Context(title='', text=' '),
  dpr_json.Context(title='River', text='a river under the bridge'),
)


@pytest.fixture(scope='module')
def tokenizer(root):
  return tokenization.load_tokenizer(root / 'tokenizer')


SIZES = {
  'chunk_length': M,
  'neighbor_length': R,
  'prompt_chunks': 1,
  'answer_length': 32,
  'num_neighbors': 20,
}


def _writer(tokenizer, **fields):
  layout = {'answer_length': 12, 'num_neighbors': 3} | fields
  return qa_rows.QaWriter(qa_rows.QaLayout(**SIZES | layout), tokenizer)


@pytest.mark.parametrize('chunks', [1, 2])
def test_answer_ends_the_prompts_last_chunk(tokenizer, chunks):
  writer = _writer(tokenizer, prompt_chunks=chunks)
  row = writer.row('who is moon?', 'seven', PASSAGES)
  size = chunks * M
  assert len(row['tokens']) == size + 11
  read = row['segment_ids'] > 0
  text = tokenizer.decode(row['tokens'][:size][read[:size]][1:])
  assert text == 'question: who is moon? \n answer:'
  first = int(np.argmax(read))
  assert row['tokens'][first] == tokenizer.bos_id
  assert read[first:size].all() and not read[:first].any()
  answer = row['targets'][row['loss_mask']]
  assert tokenizer.decode(answer[:-1]) == ' seven'
  assert answer[-1] == tokenizer.eos_id
  # The first of them is what follows the prompt, token by token.
  (scored,) = np.nonzero(row['loss_mask'])
  assert scored[0] == size - 1
  np.testing.assert_array_equal(scored, size - 1 + np.arange(len(answer)))
  np.testing.assert_array_equal(row['tokens'][scored[1:]], answer[:-1])


def test_passages_are_neighbors_of_that_chunk_alone(tokenizer):
  writer = _writer(tokenizer, prompt_chunks=2)
  row = writer.row('who?', 'seven', PASSAGES)
  assert row['neighbors'].shape == (3, 3, R)
  assert not row['neighbor_mask'][[0, 2]].any()
  mask = row['neighbor_mask'][1]
  assert mask.any(-1).tolist() == [True, True, False]
  text = tokenizer.decode(row['neighbors'][1, 1][mask[1]])
  assert 'title: River, source: a river'.startswith(text) and len(text) > 12
  assert 'neighbors' not in _writer(tokenizer, num_neighbors=0).row('a', 'b')


def test_long_questions_and_answers_are_cut(tokenizer):
  writer = _writer(tokenizer)
  row = writer.row('moon ' * 60 + 'x?', 'queen ' * 40)
  assert (row['segment_ids'] > 0).all() and row['loss_mask'].sum() == 12
  assert row['tokens'][0] == tokenizer.bos_id
  assert tokenizer.decode(row['tokens'][1:M]).endswith('x? \n answer:')
  assert row['targets'][-1] == tokenizer.eos_id


def _fid(tokenizer, count=3):
  layout = qa_rows.QaLayout(
    chunk_length=6,
    neighbor_length=48,
    prompt_chunks=1,
    answer_length=6,
    num_neighbors=count,
  )
  return qa_rows.FidWriter(layout, tokenizer)


def _fid_texts(tokenizer, row):
  tokens, mask = row['neighbors'][0], row['neighbor_mask'][0]
  return [tokenizer.decode(t[m]) for t, m in zip(tokens, mask, strict=True)]


def test_each_passage_of_a_fid_has_the_question_and_its_decoder_has_not(
  tokenizer,
):
  row = _fid(tokenizer).row(' who? ', 'queen', PASSAGES)
  first, second, third = _fid_texts(tokenizer, row)
  assert first.startswith('question: who? title: Moon context: the moon')
  assert second.startswith('question: who? title: River context: a river')
  assert third == ''
  # Nothing but BOS and the answer is read; the second chunk has no passage.
  there = row['segment_ids'] > 0
  answer = row['targets'][row['loss_mask']]
  assert tokenizer.decode(answer[:-1]) == ' queen'
  assert row['tokens'][there].tolist() == [tokenizer.bos_id, *answer]
  assert np.argmax(there) == 5 and not row['neighbor_mask'][1].any()
  for passages in ((), PASSAGES[1:2]):
    row = _fid(tokenizer, 2).row('who?', 'queen', passages)
    assert _fid_texts(tokenizer, row) == ['question: who?', '']


@pytest.mark.parametrize('kind', ['closed book', 'retro', 'fid'])
def test_what_is_written_is_likeliest_in_the_row_of_training(tokenizer, kind):
  """Training and answering see the same text at the same places."""
  writer = _writer(
    tokenizer, num_neighbors=3 if kind == 'retro' else 0, prompt_chunks=2
  )
  fields = {'cca_layers': (2,), 'encoder_num_layers': 1}
  if kind == 'fid':
    writer = _fid(tokenizer)
    fields = fid.fields(2, 6, 48)
  layout = writer.layout
  sizes = {
    'vocab_size': tokenizer.vocab_size,
    'chunk_length': layout.chunk_length,
    'neighbor_length': layout.neighbor_length,
    'num_layers': 2,
    'tie_readout': False,
  }
  c = tiny.config(**sizes | fields)
  params, size = tiny.params(c), layout.prompt_length
  sampling = drawing.SamplingConfig(
    max_new_tokens=layout.answer_length,
    temperature=0.0,
    align_prompt=True,
    num_neighbors=3,
  )
  asked = [('who is moon?', PASSAGES), ('which river ' * 4, PASSAGES[:1])]
  samples = decode.sample(
    model_lib.Retro(c),
    params,
    [writer.prompt_to_continue(*x) for x in asked],
    sampling,
    detokenize=tokenizer.decode,
  )
  for (question, passages), sample in zip(asked, samples, strict=True):
    row = writer.row(question, 'x', passages)
    written, tokens = sample.new_tokens, row['tokens'].copy()
    tokens[size:] = written[:-1]
    segments = np.where(np.arange(len(tokens)) < size, row['segment_ids'], 1)
    extra = (row[k][None] for k in ('neighbors', 'neighbor_mask') if k in row)
    logits = tiny.apply(
      c,
      params,
      tokens[None],
      *extra,
      segment_ids=segments[None].astype(np.int32),
    )
    np.testing.assert_array_equal(logits[0, size - 1 :].argmax(-1), written)
  # else any wrong cache would do
  assert len(np.unique([x.new_tokens for x in samples])) > 2


def _examples(count):
  return [
    dpr_json.Result(
      question=f'who is {i}?', answers=('moon', 'x'), contexts=PASSAGES
    )
    for i in range(count)
  ]


def test_batches_are_padded_and_draw_answers(tokenizer):
  make, writer = qa_rows.make_dataset, _writer(tokenizer)
  valid = list(make(_examples(5), writer, batch_size=4, train=False))
  assert len(valid) == 2 and not valid[1]['loss_mask'][1:].any()
  assert valid[1]['loss_mask'][0].any()
  batches = iter(make(_examples(6), writer, batch_size=4, train=True))
  tokens = np.concatenate([next(batches)['tokens'] for _ in range(9)])
  texts = {tokenizer.decode(t[:M][t[:M] > 2]) for t in tokens}
  assert len(texts) == 6  # every question comes
  answers = {tokenizer.decode(t[M : M + 2]) for t in tokens}
  assert len(answers) > 1  # and each of its answers


def test_fingerprint_knows_what_decides_rows(tokenizer):
  examples, writer = _examples(2), _writer(tokenizer)
  others = {
    qa_rows.fingerprint(examples, writer),
    qa_rows.fingerprint(examples[:1], writer),
    qa_rows.fingerprint(examples, _writer(tokenizer, answer_length=9)),
  }
  assert len(others) == 3
