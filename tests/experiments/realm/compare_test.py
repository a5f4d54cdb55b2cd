# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs, seeds and BM25 in one table, against the evaluating command's recall."""

import dataclasses
import json
import types

import numpy as np
import pytest

from experiments.realm import (
  compare,
  evaluate as realm_evaluate,
  task as realm_task,
  zero_shot,
)
from retrieval.questions import bootstrap
from tests.experiments.realm import tiny_trained

pytestmark = pytest.mark.usefixtures('fast')


@pytest.fixture
def config(data):
  found = tiny_trained.get_config(data)
  found.data_dir = str(data)
  return found


def test_rows_are_those_of_the_evaluation(
  config, trained, workdir, index, tmp_path, capsys
):
  rows = compare.run(
    config,
    str(tmp_path),
    [f'after={workdir}', f'before={workdir},step=0', 'words=bm25'],
  )['rows']
  start = realm_task.untrained(trained.config, trained.data)
  start = dataclasses.replace(start, index_folder=trained.index_folder)
  retrievers = {
    'after': realm_evaluate.retriever(trained, index),
    'before': realm_evaluate.retriever(start, start.open_index()),
    'words': realm_evaluate.bm25_retriever(trained.data),
  }
  tables = {
    name: dict(zero_shot.tables(name, x, trained.data.blocks, config.evaluate))
    for name, x in retrievers.items()
  }
  (file,) = config.evaluate.questions
  assert [row['name'] for row in rows] == list(retrievers)
  ranks = {
    (name, x.rule): x.first_hits for name in tables for x in tables[name][file]
  }
  assert len({tuple(x) for x in ranks.values()}) > 1
  for row in rows:
    for rule in config.evaluate.rules:
      key, found = f'questions.jsonl, {rule}', ranks[row['name'], rule]
      values = row['questions'][key]
      for k in config.evaluate.ks:
        hits = (found >= 0) & (found < k)
        assert values[f'recall@{k}'] == pytest.approx(hits.mean())
        for other in retrievers.keys() - {row['name']}:
          theirs = ranks[other, rule]
          less = hits.astype(float) - ((theirs >= 0) & (theirs < k))
          interval = dataclasses.asdict(bootstrap.bootstrap(less))
          each = {'of_seeds': [interval['mean']]}
          assert row['minus'][other][key][f'recall@{k}'] == interval | each
      reciprocal = [0 if x < 0 else 1 / (1 + x) for x in found]
      assert values['mrr'] == pytest.approx(np.mean(reciprocal))
  assert json.loads((tmp_path / compare.FILE).read_text())
  assert 'less after' in capsys.readouterr().out


def test_a_question_counts_with_the_mean_of_its_seeds(
  config, workdir, tmp_path
):
  runs = [f'{workdir}', f'{workdir},step=0']
  rows = compare.run(
    config,
    str(tmp_path),
    [
      'words=bm25',
      'words=bm25',
      *(f'both={run}' for run in runs),
      f'one={runs[0]}',
      f'two={runs[1]}',
    ],
  )['rows']
  words, both, one, two = rows
  for key, values in both['questions'].items():
    for name, value in values.items():
      each = [x['questions'][key][name] for x in (one, two)]
      assert value == pytest.approx(np.mean(each))
      less = both['minus']['words'][key][name]
      first = words['questions'][key][name]
      assert less['of_seeds'] == pytest.approx(np.subtract(each, first))
      assert less['mean'] == pytest.approx(value - first)


@pytest.mark.parametrize(
  'row, questions, said',
  [
    ('one=nowhere', None, 'nowhere.: expected a folder'),
    ('one=bm25,k=2', None, 'step=N, a number'),
    ('one=bm25,step=3', None, 'bm25 has no steps'),
    ('one=bm25,step=3,step=3', None, 'each once'),
    ('one=bm25', (), r'evaluate.questions: \[\], expected files'),
    ('one=bm25', ('a/x.jsonl', 'b/x.jsonl'), 'each of another name'),
  ],
)
def test_bad_rows_are_refused(config, tmp_path, row, questions, said):
  if questions is not None:
    config.evaluate.questions = questions
  with pytest.raises(ValueError, match=said):
    compare.run(config, str(tmp_path), [row])


def test_runs_over_other_blocks_are_refused(
  config, workdir, tmp_path, monkeypatch
):
  blocks = types.SimpleNamespace(fingerprint='other', path=tmp_path)
  data = types.SimpleNamespace(blocks=blocks)
  monkeypatch.setattr(compare.realm_data.DataFolder, 'of', lambda *unused: data)
  with pytest.raises(ValueError, match='searches the blocks of .*; expected'):
    compare.run(config, str(tmp_path), [f'one={workdir}'])
