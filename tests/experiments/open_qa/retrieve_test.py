# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Retrievers compared on question sets, from a run to the table and the files."""

import json
import types

import numpy as np
import pytest

from experiments import retrieve, score
from experiments.engine import configs
from experiments.open_qa import (
  rankings,
)
from realm_jax.serving import trained_models
from retrieval.questions import (
  answers,
  dpr_json,
  question_sets,
  ranking,
  trec_files,
)
from retrieval.search import (
  fuse,
)
from tests.experiments.open_qa import tiny_open_qa

KINDS = ['bm25', 'dense', 'random']
DEPTH = 7


@pytest.fixture(scope='module')
def made(tmp_path_factory):
  return tiny_open_qa.untrained(tmp_path_factory.mktemp('retrieve'))


@pytest.fixture
def run(made, monkeypatch, capsys):
  """Runs the command; returns what it printed."""

  def run(number=None, words_weight=0.0, **values):
    defaults = {'kinds': KINDS, 'run': [], 'qrels': '', 'rule': 'substring'}
    defaults |= {'depth': DEPTH, 'contexts': 3, 'output': '', 'packaged': False}
    given = tiny_open_qa.Flags(**defaults | values)
    monkeypatch.setattr(retrieve, 'flags', types.SimpleNamespace(FLAGS=given))
    config = configs.replaced(made.config, data_dir='')
    sets = tiny_open_qa.sets(made.data)
    wanted = retrieve.Evaluate(
      questions=sets if number is None else (sets[number],),
      words_weight=words_weight,
      batch_size=4,
    )
    retrieve.run(config, str(made.workdir), wanted)
    return capsys.readouterr().out

  return run


@pytest.fixture(scope='module')
def sets(made):
  return question_sets.load_sets(tiny_open_qa.sets(made.data), 0, True)


def _record(folder, number=0):
  content = json.loads((folder / retrieve.FILE).read_text())
  return content['sets'][number]


def test_from_a_run_to_the_files(made, run, sets):
  printed = run()
  folder = made.workdir / 'retrieval'
  assert 'custom:test: 6 questions' in printed and 'rule regex' in printed
  assert printed.count(' - bm25 ') == 4 and 'recall@5' in printed
  data = trained_models.load(made.workdir, part='reader').data
  for number, found in enumerate(sets):
    stem = found.name.replace(':', '_')
    qrels = trec_files.read_qrels(folder / f'{stem}.qrels')
    record = _record(folder, number)
    assert record['questions'] == len(found.questions)
    rule = answers.make_rule('regex' if found.kind == 'regex' else 'substring')
    for kind, row in zip(KINDS, record['retrievers'], strict=True):
      run_found = trec_files.read_run(folder / f'{stem}.{kind}.run')
      results = list(dpr_json.read_results(folder / f'{stem}.{kind}.json'))
      hits = []
      for question, result in zip(found.questions, results, strict=True):
        blocks = [name for name, _ in run_found.get(question.id, [])]
        assert [c.id for c in result.contexts] == blocks[:3]
        holds = rule.compile(question.answers)
        texts = [c.text for c in result.contexts]
        wanted = [bool(holds(*rule.prepare([text]))) for text in texts]
        assert [c.has_answer for c in result.contexts] == wanted
        grades = [qrels[question.id][block] > 0 for block in blocks]
        assert grades[:3] == wanted
        hits.append(grades + [False] * (DEPTH - len(grades)))
      want = ranking.recall_at_k(np.array(hits), 5).mean()
      assert row['measures']['recall@5']['mean'] == want
      assert row['questions_per_sec'] > 0
    assert not record['retrievers'][0]['differences']
    units = [row['unit'] for row in record['retrievers']]
    assert units == ['BM25', 'inner product', 'random']
  assert data.blocks.num_blocks == record['blocks']
  # The file for readers is scored as any other.
  spec = tiny_open_qa.sets(made.data)[0]
  report = score.score(
    folder / 'custom_test.dense.json', question_sets.load(spec)
  )
  measured = report.metrics['substring/top_1'].mean
  own = _record(folder)['retrievers'][1]['measures']['recall@1']['mean']
  assert measured == own and report.missing == 0


def test_a_run_of_another_system_is_scored(made, run, tmp_path):
  folder = tmp_path / 'first'
  run(0, kinds=['dense'], output=str(folder))
  [own] = _record(folder)['retrievers']
  theirs = folder / 'custom_test.dense.run'
  other = tmp_path / 'theirs_with_a_long_name.run'
  other.write_text(theirs.read_text())
  printed = run(0, kinds=['bm25'], run=[str(other)], output=str(tmp_path))
  first, second = _record(tmp_path)['retrievers']
  assert (
    second['name'] == 'theirs_with_a_long_name'
    and second['questions_per_sec'] is None
  )
  for name in ('recall@1', 'recall@5', 'MRR'):
    assert second['measures'][name] == own['measures'][name]
    gain = second['measures'][name]['mean'] - first['measures'][name]['mean']
    assert second['differences'][name]['mean'] == pytest.approx(gain)
  assert printed.count(' - bm25 ') == 1 and ' …a_long_name ' in printed
  # By the judgments of the first call the measures are those of the first call.
  qrels = str(folder / 'custom_test.qrels')
  run(0, kinds=[], run=[str(other)], qrels=qrels, output=str(tmp_path))
  assert _record(tmp_path)['judged_by'] == qrels
  assert _record(tmp_path)['retrievers'][0]['measures'] == own['measures']


@pytest.mark.parametrize(
  ('number', 'values', 'message'),
  [
    (0, {'kinds': ['bm52']}, "--kinds: 'bm52', expected some of"),
    (0, {'kinds': ['bm25'] * 2}, "names .'bm25', 'bm25'.: expected at least"),
    (0, {'kinds': []}, 'expected at least one, and each once'),
    (None, {'qrels': 'x'}, 'of one question set, but .* names 2'),
    (0, {'run': ['{tmp}/blocks.run']}, "'q1': no block is named 'd9:0-1' .* blocks"),
    (0, {'run': ['{tmp}/other.run']}, "other: none of its 1 questions, such as"),
    (0, {'run': ['{tmp}/bad.run']}, 'bad.run:1: 2 fields, expected 6'),
  ],
)  # fmt: skip
def test_bad_input_is_refused(run, tmp_path, number, values, message):
  (tmp_path / 'blocks.run').write_text('q1 Q0 d9:0-1 1 1 x\n')
  (tmp_path / 'other.run').write_text('z1 Q0 d1:0-1 1 1 x\n')
  (tmp_path / 'bad.run').write_text('q1 Q0\n')
  paths = [x.format(tmp=tmp_path) for x in values.get('run', [])]
  with pytest.raises(ValueError, match=message):
    run(number, **{'kinds': ['bm25']} | values | {'run': paths})


def test_hybrids_find_what_the_files_of_both_give(made, run, tmp_path):
  folder = tmp_path / 'retrieval'
  kinds = ['dense', 'bm25', 'hybrid', 'weighted']
  run(0, 0.25, kinds=kinds, depth=100, output=str(folder))
  found = {
    kind: trec_files.read_run(folder / f'custom_test.{kind}.run')
    for kind in kinds
  }
  names = rankings.BlockNames(trained_models.load(made.workdir).data.blocks)
  for question in found['hybrid']:
    parts = []
    for kind in ('dense', 'bm25'):
      blocks, scores = zip(*found[kind][question], strict=True)
      parts.append((np.array([names.ids(blocks, '')]), np.array([scores])))
    for kind, (ids, scores) in (
      ('hybrid', fuse.by_ranks([ids for ids, _ in parts], 100)),
      ('weighted', fuse.by_scores(parts, (0.75, 0.25), 100)),
    ):
      kept = ids[0] >= 0
      want = dict(zip(names.of(ids[0][kept]), scores[0][kept], strict=True))
      assert dict(found[kind][question]) == pytest.approx(want, abs=1e-5)
