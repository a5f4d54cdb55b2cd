# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The evaluating command measures documents, retrievers and its own index."""

import json

import numpy as np
import pytest

from experiments.realm import evaluate as realm_evaluate, zero_shot
from retrieval.questions import answers
from tests.experiments.realm import tiny_trained

pytestmark = pytest.mark.usefixtures('fast')


def test_evaluates_documents_and_retrievers(
  data, workdir, index, tmp_path, capsys, monkeypatch
):
  measure, asked = zero_shot.measure, {}

  def watched(retrievers, *arguments):
    asked.update(retrievers)
    return measure(retrievers, *arguments)

  monkeypatch.setattr(zero_shot, 'measure', watched)
  config = tiny_trained.get_config(data)
  config.evaluate.workdir = str(workdir)
  realm_evaluate.run(config, str(tmp_path / 'new'))
  found = json.loads((tmp_path / 'new' / 'evaluation.json').read_text())
  assert found['step'] == tiny_trained.STEP
  retrieved, random = (found['masked'][x] for x in ('retrieved', 'random'))
  assert retrieved['examples'] == random['examples'] == config.batch_size
  # The same sentences, so the same without documents, and others with them.
  for name in ('log_prob', 'accuracy', 'exact_span'):
    name = f'null_{name}'
    assert retrieved[name] == pytest.approx(random[name], abs=1e-5)
  assert abs(retrieved['log_prob'] - random['log_prob']) > 1e-3
  for values in (retrieved, random):
    gain = values['log_prob'] - values['null_log_prob']
    assert values['retrieval_utility'] == pytest.approx(gain, abs=1e-4)
    assert 0 < values['null_prior'] < 1
  rows = {(row['retriever'], row['rule']): row for row in found['zero_shot']}
  names = ('before', f'step {tiny_trained.STEP}', 'BM25')
  assert set(rows) == {
    (x, rule) for x in names for rule in ('substring', 'dpr')
  }
  for row in rows.values():
    shares = [row[f'recall@{k}']['mean'] for k in config.evaluate.ks]
    # All blocks are among a hundred; two of three answers stand in one.
    assert shares == sorted(shares) and shares[-1] == pytest.approx(2 / 3)
    assert row['questions'] == 3
  texts = [question['question'] for question in tiny_trained.QUESTIONS]
  before, after = (asked[name](texts, 9) for name in names[:2])
  assert (before != after).any(axis=1).all()
  printed = capsys.readouterr().out
  for part in ('retrieved', 'null only', 'random', *names, 'recall@100'):
    assert part in printed
  assert f'{-retrieved["log_prob"]:.4f}' in printed


def test_recall_is_of_the_models_own_index(data, trained, index):
  """Zero-shot recall against the texts of the blocks, one by one."""
  config = tiny_trained.get_config(data)
  blocks = trained.data.blocks
  retrieve = realm_evaluate.retriever(trained, index)
  texts = [question['question'] for question in tiny_trained.QUESTIONS]
  ids = retrieve(texts, 30)
  for text, row in zip(texts, ids, strict=True):
    found = index.retrieve_texts(
      [text], 30, trained.data.tokenizer, trained.layout
    )
    np.testing.assert_array_equal(found[0], row)
  rule = answers.make_rule('substring', None)
  hits = [
    any(rule.compile(tuple(q['answer']))(text) for text in blocks.texts(row))
    for q, row in zip(tiny_trained.QUESTIONS, ids[:, :3].tolist(), strict=True)
  ]
  table = zero_shot.measure({'x': retrieve}, blocks, config.evaluate)
  assert table[0]['recall@3']['mean'] == pytest.approx(np.mean(hits))


def test_without_questions_or_checkpoint(data, workdir, tmp_path, capsys):
  config = tiny_trained.get_config(data)
  config.evaluate.questions = ()
  realm_evaluate.run(config, str(workdir))
  found = json.loads((workdir / 'evaluation.json').read_text())
  assert set(found) == {'step', 'masked'}
  with pytest.raises(FileNotFoundError, match='checkpoint'):
    realm_evaluate.run(config, str(tmp_path))
