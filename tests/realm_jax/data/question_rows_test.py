# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Batches of questions: nothing dropped, processes, resume, gold spans."""

import dataclasses

import numpy as np
import pytest

from realm_jax.data import question_rows
from retrieval.questions import question_files
from tests import streams
from tests.realm_jax.data import tiny_qa
from tests.retrieval.text import tiny_blocks

N, Q = 11, 6


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  root = tmp_path_factory.mktemp('data')
  made = tiny_blocks.make(root, np.random.default_rng(0), num_documents=8)
  made.layout = tiny_qa.layout(
    made.tokenizer, row_length=40, question_length=Q, max_span_width=4
  )
  words = 'mill crown Paris was river'.split()
  made.questions = [
    question_files.Question(
      f'q{i}',
      ' '.join(words[: 1 + i % 5]) + f' {i}',
      ('(the|a) mill', '19+') if i == 3 else ('The', words[i % 5]),
      'regex' if i == 3 else 'string',
    )
    for i in range(N)
  ]
  made.source = _source(made)
  return made


def _source(data, questions=None, layout=None):
  return question_rows.QuestionSource(
    questions or data.questions, data.tokenizer, layout or data.layout
  )


def _dataset(data, **fields):
  fields = {'batch_size': 4, 'train': False} | fields
  return question_rows.make_dataset(data.source, **fields)


def _indices(batches):
  return [
    i for b in batches for i in b['question_index'][b['row_valid']].tolist()
  ]


def test_one_pass_keeps_order_and_drops_nothing(data):
  batches = streams.take(_dataset(data))
  assert _indices(batches) == [*range(N)]
  assert [b['row_valid'].tolist() for b in batches] == [[True] * 4] * 2 + [
    [True] * 3 + [False]
  ]
  last = batches[-1]
  assert last['question_index'].tolist() == [8, 9, 10, question_rows.NONE]
  assert last['question_index'].dtype == np.int32
  specials = [data.layout.cls_id, data.layout.sep_id]
  assert last['question_ids'][-1, :2].tolist() == specials
  assert last['question_mask'][-1].sum() == 2


def test_training_has_no_end_and_another_order_each_pass(data):
  batches = streams.take(_dataset(data, train=True, seed=1), 11)
  assert all(b['row_valid'].all() for b in batches)
  found = _indices(batches)
  passes = [found[at : at + N] for at in range(0, 4 * N, N)]
  assert [sorted(x) for x in passes] == [[*range(N)]] * 4
  assert len({tuple(x) for x in passes}) == 4
  again = _indices(streams.take(_dataset(data, train=True, seed=1), 11))
  other = _indices(streams.take(_dataset(data, train=True, seed=2), 11))
  assert again == found != other
  big = streams.take(_dataset(data, train=True, batch_size=3 * N), 1)
  assert sorted(_indices(big)) == sorted([*range(N)] * 3)


@pytest.mark.parametrize('train', [False, True])
def test_processes_share_the_same_batches(data, train):
  whole = streams.take(_dataset(data, train=train), 3)
  shares = [
    streams.take(
      _dataset(data, train=train, process_index=p, process_count=2), 3
    )
    for p in range(2)
  ]
  for batch, *parts in zip(whole, *shares, strict=True):
    assert all(len(part['row_valid']) == 2 for part in parts)
    for name, value in batch.items():
      for p, part in enumerate(parts):
        np.testing.assert_array_equal(part[name], value[p::2], name)
  if not train:  # and none has a batch more
    assert len(streams.take(_dataset(data, process_count=2))) == 3


def test_few_questions_fill_many_rows(data):
  batches = streams.take(_dataset(data, batch_size=1, padded_size=8))
  assert _indices(batches) == [*range(N)]
  assert {len(b['row_valid']) for b in batches} == {8}
  batches = streams.take(_dataset(data, batch_size=5, padded_size=4))
  assert {b['question_ids'].shape for b in batches} == {(8, Q)}
  for p in range(4):
    fields = {'process_index': p, 'process_count': 4, 'padded_size': 8}
    found = streams.take(_dataset(data, batch_size=1, **fields))
    assert _indices(found) == ([*range(N)] if p == 0 else [])
    assert [len(b['row_valid']) for b in found] == [2] * N


def test_fingerprint_is_of_questions_answers_tokens_and_layout(data):
  first = data.questions[0]
  sources = [
    data.source,
    *(
      _source(data, [dataclasses.replace(first, **x), *data.questions[1:]])
      for x in ({'answers': ('x',)}, {'question': 'y'}, {'kind': 'regex'})
    ),
    _source(data, layout=dataclasses.replace(data.layout, question_length=5)),
  ]
  assert len({x.fingerprint for x in sources}) == len(sources)
  assert len({repr(x) for x in sources}) == len(sources)
  assert _source(data).fingerprint == data.source.fingerprint
