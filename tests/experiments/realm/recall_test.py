# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Zero-shot recall of a retriever against the blocks' texts, one by one."""

import numpy as np
import pytest

from experiments.realm import recall
from retrieval.questions import answers, question_files

Q = question_files.Question
QUESTIONS = (
  Q('a', 'mill?', ('1066', 'crown was')),
  Q('b', 'river?', ('Rome',)),
  Q('c', 'what?', ('unknown',)),
)
PATTERNS = (Q('a', 'when?', ('1[0-9]+',), 'regex'),)


def _retrieve(blocks):
  """Returns a search that gives each question other blocks."""

  def retrieve(texts, k):
    rows = []
    for text in texts:
      rng = np.random.default_rng(len(text))
      rows.append(rng.permutation(blocks.num_blocks)[:k])
    ids = np.full((len(texts), k), -1)
    for row, found in zip(ids, rows, strict=True):
      row[: len(found)] = found
    return ids

  return retrieve


@pytest.mark.parametrize(
  'questions, batch', [(QUESTIONS, 1), (QUESTIONS, 9), (PATTERNS, 1)]
)
def test_ranks_are_those_of_each_rule(trained, questions, batch, monkeypatch):
  monkeypatch.setattr(recall, '_BATCH', batch)
  blocks, calls = trained.data.blocks, []
  retrieve = _retrieve(blocks)
  ranks_by_rule = recall.first_hits(
    retrieve, blocks, questions, lambda *done: calls.append(done)
  )
  rules = ['regex'] if questions is PATTERNS else ['substring', 'dpr']
  count = len(questions)
  assert list(ranks_by_rule) == rules
  assert calls[-1] == (count, count) and len(calls) == -(-count // batch)
  for rule, ranks in ranks_by_rule.items():
    tests = answers.make_rule(rule)
    for question, rank in zip(questions, ranks, strict=True):
      texts = blocks.texts(retrieve([question.question], blocks.num_blocks)[0])
      holds = tests.compile(question.answers)
      hits = [i for i, x in enumerate(tests.prepare(texts)) if holds(x)]
      assert rank == (hits[0] if hits else np.inf)
