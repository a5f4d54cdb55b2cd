# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The evaluators measure documents, retrievers and the run's own index."""

import json
import shutil

import numpy as np
import pytest

from experiments.realm import evaluate as evaluators
from retrieval.questions import answers, question_files
from tests.experiments.realm import tiny_realm, tiny_trained


def test_evaluates_documents_and_retrievers(
  data, workdir, index, tmp_path, capsys, monkeypatch
):
  measure, asked = evaluators.measure_recall, {}

  def watched(retrievers, *arguments):
    asked.update(retrievers)
    return measure(retrievers, *arguments)

  monkeypatch.setattr(evaluators, 'measure_recall', watched)
  config, folder = tiny_realm.get_config(str(data)), tmp_path / 'run'
  shutil.copytree(workdir, folder)
  wanted = evaluators.Evaluate(questions=(f'{data}/questions.jsonl',))
  evaluators.evaluate(config, str(folder), wanted)
  found = json.loads((folder / 'evaluation.json').read_text())
  assert found['step'] == tiny_trained.STEP
  retrieved, random = (found['masked'][x] for x in ('retrieved', 'random'))
  assert 0 < retrieved['examples'] == random['examples']
  # The same sentences, so the same without documents, and others with them.
  for name in ('log_prob', 'accuracy', 'exact_span'):
    name = f'null_{name}'
    assert retrieved[name] == pytest.approx(random[name], abs=1e-5)
  assert abs(retrieved['log_prob'] - random['log_prob']) > 1e-3
  for values in (retrieved, random):
    gain = values['log_prob'] - values['null_log_prob']
    assert values['retrieval_utility'] == pytest.approx(gain, abs=1e-4)
    assert 0 < values['null_prior'] < 1
  rows = {(row['retriever'], row['rule']): row for row in found['rows']}
  names = ('before', f'step {tiny_trained.STEP}', 'BM25')
  assert set(rows) == {
    (x, rule) for x in names for rule in ('substring', 'dpr')
  }
  for row in rows.values():
    shares = [row[f'recall@{k}']['mean'] for k in evaluators.KS]
    # All blocks are among a hundred; two of three answers stand in one.
    assert shares == sorted(shares) and shares[-1] == pytest.approx(2 / 3)
    assert row['questions'] == 3
  texts = [question['question'] for question in tiny_trained.QUESTIONS]
  before, after = (asked[name](texts, 9) for name in names[:2])
  assert (before != after).any(axis=1).all()
  printed = capsys.readouterr().out
  for part in ('null only', 'minus null', *names, 'recall@100'):
    assert part in printed


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
    rngs = [np.random.default_rng(len(text)) for text in texts]
    ids = np.stack([x.permutation(blocks.num_blocks)[:k] for x in rngs])
    missing = (0, 0), (0, k - ids.shape[1])
    return np.pad(ids, missing, constant_values=-1)

  return retrieve


@pytest.mark.parametrize(
  'questions, batch', [(QUESTIONS, 1), (QUESTIONS, 9), (PATTERNS, 1)]
)
def test_ranks_are_those_of_each_rule(trained, questions, batch, monkeypatch):
  monkeypatch.setattr(evaluators, '_BATCH', batch)
  blocks, calls = trained.data.blocks, []
  retrieve = _retrieve(blocks)
  ranks_by_rule = evaluators.first_hits(
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
