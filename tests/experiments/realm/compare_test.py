# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs, seeds and BM25 in one table, against the evaluating command's recall."""

import dataclasses
import json

import numpy as np
import pytest

from experiments.realm import compare, recall, starts
from retrieval.questions import bootstrap
from tests.experiments.realm import tiny_trained


@pytest.fixture
def config(data):
  return tiny_trained.get_config(data)


@pytest.fixture
def wanted(data):
  return compare.Compare(**tiny_trained.recall(data))


def test_rows_are_those_of_the_evaluation(
  config, wanted, trained, workdir, index, tmp_path, capsys, monkeypatch
):
  monkeypatch.setattr(bootstrap, 'LEAST', 2)
  rows = compare.compare(
    config,
    str(tmp_path),
    wanted,
    [f'after={workdir}', f'before={workdir},step=0', 'words=bm25'],
  )['rows']
  start = starts.untrained(config, trained.data, trained.index_folder)
  where = trained.data, trained.layout
  retrievers = {
    'after': recall.dense(index, *where),
    'before': recall.dense(start.open_index(), *where),
    'words': recall.bm25(trained.data),
  }
  tables = {
    name: dict(recall.tables(name, x, trained.data.blocks, wanted))
    for name, x in retrievers.items()
  }
  (file,) = wanted.questions
  assert [row['name'] for row in rows] == list(retrievers)
  ranks = {
    (name, rule): x for name in tables for rule, x in tables[name][file].items()
  }
  assert len({tuple(x) for x in ranks.values()}) > 1
  for row in rows:
    for rule in wanted.rules:
      key, found = f'questions.jsonl, {rule}', ranks[row['name'], rule]
      values = row['questions'][key]
      for k in wanted.ks:
        hits = found < k
        assert values[f'recall@{k}'] == pytest.approx(hits.mean())
        for other in retrievers.keys() - {row['name']}:
          theirs = ranks[other, rule]
          less = hits.astype(float) - (theirs < k)
          interval = dataclasses.asdict(bootstrap.bootstrap(less))
          each = {'of_seeds': [interval['mean']]}
          assert row['minus'][other][key][f'recall@{k}'] == interval | each
      reciprocal = [1 / (1 + x) for x in found]
      assert values['mrr'] == pytest.approx(np.mean(reciprocal))
  assert json.loads((tmp_path / compare.FILE).read_text())
  with np.load(tmp_path / 'compare.npz') as arrays:
    for (name, rule), found in ranks.items():
      values = arrays[f'{name}, questions.jsonl, {rule}, recall@1']
      np.testing.assert_array_equal(values, [found < 1])
  assert 'less after' in capsys.readouterr().out


def test_a_question_counts_with_the_mean_of_its_seeds(
  config, wanted, workdir, tmp_path
):
  runs = [f'{workdir}', f'{workdir},step=0']
  rows = compare.compare(
    config,
    str(tmp_path),
    wanted,
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
  'row, questions',
  [
    ('one=nowhere', None),
    ('one=bm25,k=2', None),
    ('one=bm25,step=3', None),
    ('one=bm25', ()),
    ('one=bm25', ('a/x.jsonl', 'b/x.jsonl')),
  ],
)
def test_bad_rows_are_refused(config, wanted, tmp_path, row, questions):
  if questions is not None:
    wanted = dataclasses.replace(wanted, questions=questions)
  with pytest.raises(ValueError):
    compare.compare(config, str(tmp_path), wanted, [row])
