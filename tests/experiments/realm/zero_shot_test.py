# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The table of zero-shot retrieval on blocks of a few words."""

import json

import numpy as np
import pytest

from experiments.realm import zero_shot
from retrieval.questions import questions as questions_lib
from retrieval.search import bm25

Q = questions_lib.Question
TEXTS = (
  'Rome is the capital of Italy',
  'paris lies on the Seine',
  'the year 1961 was long',
  'Paris is a city',
  'nothing',
)
QUESTIONS = (
  Q('a', 'Seine?', ('Paris',)),
  Q('b', 'year?', ('196', 'long ago')),
  Q('c', 'Italy?', ('Rome', 'Roma')),
  Q('d', 'when?', ('19[0-9]+',), 'regex'),
  Q('e', 'what?', ('unknown',)),
)
RANKS = {
  'Seine?': [1, 3],
  'year?': [4, 2],
  'Italy?': [0, 1],
  'when?': [4, 2],
  'what?': [-1, -1],
}


def retrieve(asked, k):
  return np.array([(RANKS[q] + [-1] * k)[:k] for q in asked])


def texts_of(ids):
  return [TEXTS[i] for i in ids]


def table(questions=QUESTIONS, ks=(2, 1), **settings):
  rows = zero_shot.recall_table(questions, retrieve, texts_of, ks, **settings)
  return {row.rule: row for row in rows}


@pytest.mark.parametrize('batch_size', [1, 2, 9])
def test_rules_and_ranks(batch_size):
  calls = []
  rows = table(batch_size=batch_size, progress=lambda *done: calls.append(done))
  assert list(rows) == ['substring', 'dpr', 'regex']
  assert rows['substring'].first_hits.tolist() == [1, 1, 0, -1]
  assert rows['dpr'].first_hits.tolist() == [0, -1, 0, -1]
  assert rows['regex'].first_hits.tolist() == [1]
  shares = {
    rule: [row.shares[k].mean for k in (1, 2)] for rule, row in rows.items()
  }
  assert shares == {
    'substring': [0.25, 0.75],
    'dpr': [0.5, 0.5],
    'regex': [0.0, 1.0],
  }
  assert calls[-1] == (5, 5) and len(calls) == -(-5 // batch_size)


def test_intervals_and_json():
  (row,) = table(QUESTIONS[:3], rules=('dpr',)).values()
  share = row.shares[1]
  assert 0 <= share.low < share.mean == 2 / 3 < share.high <= 1
  content = json.loads(json.dumps(row.to_json()))
  assert content == {
    'rule': 'dpr',
    'questions': 3,
    'recall@1': {'mean': share.mean, 'low': share.low, 'high': share.high},
    'recall@2': content['recall@2'],
  }


def test_with_bm25():
  index = bm25.Bm25.build(TEXTS)
  rows = zero_shot.recall_table(
    QUESTIONS, lambda asked, k: index.search(asked, k)[0], texts_of, (1, 20)
  )
  assert [row.shares[20].mean for row in rows] == [0.5, 0.5, 0]


def test_refuses_what_does_not_fit():
  for settings, message in (
    ({'questions': ()}, '0 questions'),
    ({'ks': ()}, r'ks=\[\]'),
    ({'ks': (0, 1)}, r'ks=\[0, 1\]'),
    ({'batch_size': 0}, 'batch_size=0'),
    ({'questions': QUESTIONS[:1] * 2}, 'the same id'),
    ({'rules': ('regex',)}, 'to no others'),
    ({'rules': ('exact',)}, "rule 'exact'"),
  ):
    with pytest.raises(ValueError, match=message):
      table(**settings)
  with pytest.raises(ValueError, match=r'shape \(5, 1\), expected \(5, 2\)'):
    zero_shot.recall_table(
      QUESTIONS, lambda asked, k: retrieve(asked, 1), texts_of, (2,)
    )
