# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Retrievers compared on question sets, from a run to the table and the files."""

import dataclasses
import json
import types

import numpy as np
import pytest

from experiments import retrieve, score
from experiments.engine import configs
from experiments.open_qa import evaluate as evaluators, rankings
from realm_jax.trained import loading
from retrieval.nn import embedders
from retrieval.questions import answers, dpr_json, question_sets, trec_files
from retrieval.search import rerank
from tests.experiments.open_qa import tiny_open_qa
from tests.retrieval.nn import cross_folders, sentence_folders

KINDS = ['bm25', 'dense', 'random', 'hybrid', 'weighted']
DEPTH = 7


@pytest.fixture(scope='module')
def made(tmp_path_factory):
  return tiny_open_qa.untrained(tmp_path_factory.mktemp('retrieve'))


@pytest.fixture
def run(made, monkeypatch, capsys):
  """Runs the command; returns what it printed."""

  def run(number=None, measures=(), **values):
    given = tiny_open_qa.Flags(**{'kinds': KINDS, 'depth': DEPTH} | values)
    monkeypatch.setattr(retrieve, 'flags', types.SimpleNamespace(FLAGS=given))
    config = configs.replaced(made.config, data_dir='')
    sets = tiny_open_qa.sets(made.data)
    wanted = retrieve.Evaluate(
      questions=sets if number is None else (sets[number],),
      measures=measures,
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
  printed = ' '.join(run().split())  # titles break by the table's width
  folder = made.workdir / 'retrieval'
  assert 'custom:test: 6 questions' in printed and 'rule regex' in printed
  assert printed.count(' - bm25 ') == 8 and 'recall@5' in printed
  data = loading.load(made.workdir, part='reader').data
  for number, found in enumerate(sets):
    stem = found.name.replace(':', '_')
    qrels = trec_files.read_qrels(folder / f'{stem}.qrels')
    record = _record(folder, number)
    assert record['questions'] == len(found.questions)
    rule = answers.make_rule('regex' if found.kind == 'regex' else 'dpr')
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
      want = np.array(hits)[:, :5].any(axis=1).mean()
      assert row['measures']['recall@5']['mean'] == want
      assert row['questions_per_sec'] > 0
    assert not record['retrievers'][0]['differences']
    units = [row['unit'] for row in record['retrievers']]
    assert units[:3] == ['BM25', 'inner product', 'random']
  assert units[3:] == ['fused rank score', 'weighted score']
  assert data.blocks.num_blocks == record['blocks']
  # The file for readers is scored as any other.
  spec = tiny_open_qa.sets(made.data)[0]
  report = score.score(
    folder / 'custom_test.dense.json', question_sets.load(spec)
  )
  measured = report['metrics']['dpr/top_1']['mean']
  own = _record(folder)['retrievers'][1]['measures']['recall@1']['mean']
  assert measured == own and report['missing'] == 0


def test_a_cross_encoder_orders_the_first_blocks(made, run, sets, tmp_path):
  folder = cross_folders.save(tmp_path / 'cross', 'roberta')
  kinds = ['bm25', f'bm25+{folder}']
  run(0, kinds=kinds, depth=50, output=str(tmp_path))
  before, after = (
    trec_files.read_run(tmp_path / f'custom_test.{kind}.run')
    for kind in ('bm25', 'bm25+cross')
  )
  blocks = loading.load(made.workdir, part='reader').data.blocks
  reranker = rerank.load(folder)
  for question in sets[0].questions:
    names = [name for name, _ in before.get(question.id, ())]
    ordered = dict(after.get(question.id, ()))
    assert {*ordered} == {*names}
    ids = np.asarray(rankings.Names(blocks).ids(names, ''), np.int64)
    [scores] = reranker.score([question.question], [blocks.full_texts(ids)])
    np.testing.assert_allclose([ordered[x] for x in names], scores, atol=1e-4)
    assert [*ordered.values()] == sorted(ordered.values(), reverse=True)


def test_a_run_of_another_system_is_scored(made, run, tmp_path):
  folder = tmp_path / 'first'
  run(0, kinds=['dense'], output=str(folder))
  [own] = _record(folder)['retrievers']
  theirs = folder / 'custom_test.dense.run'
  other = tmp_path / 'theirs.run'
  other.write_text(theirs.read_text())
  printed = run(0, kinds=['bm25'], run=[str(other)], output=str(tmp_path))
  first, second = _record(tmp_path)['retrievers']
  assert second['name'] == 'theirs' and second['questions_per_sec'] is None
  for name in ('recall@1', 'recall@5', 'MRR'):
    assert second['measures'][name] == own['measures'][name]
    gain = second['measures'][name]['mean'] - first['measures'][name]['mean']
    assert second['differences'][name]['mean'] == pytest.approx(gain)
  assert printed.count(' - bm25 ') == 1 and 'theirs' in printed


@pytest.mark.parametrize(
  ('number', 'values', 'message'),
  [
    (0, {'kinds': ['bm52']}, "--kinds: 'bm52', expected some of"),
    (0, {'kinds': ['bm25'] * 2}, "names .'bm25', 'bm25'.: expected at least"),
    (0, {'kinds': []}, 'expected at least one, and each once'),
    (None, {'run': ['x']}, 'of one question set, but .* names 2'),
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


def test_measures_go_by_the_names_of_ir_measures(run, tmp_path):
  names = ('P@5', 'R@2', 'nDCG')
  run(0, measures=names, kinds=['bm25'], output=str(tmp_path))
  [found] = _record(tmp_path)['retrievers']
  assert tuple(found['measures']) == names
  with pytest.raises(ValueError, match="'R@8' looks at more than --depth=7"):
    run(0, measures=('R@8',))
  with pytest.raises(ValueError, match="measures: 'nDGC@10'"):
    run(0, measures=('nDGC@10',))


def _beir(root, rows):
  """Writes BEIR's folder `root`: a judged document with blocks, and others."""
  text = ' '.join(f'The mill stood in Paris in 10{i:02}.' for i in range(40))
  documents = [
    {'_id': 'long', 'title': 'Mill', 'text': text},
    {'_id': 'a%26b', 'text': 'The mill was in Rome.'},
    {'_id': 'only', 'title': 'The crown of Rome', 'text': ''},
    {'_id': 'empty', 'title': '', 'text': ''},
    {'_id': 'q1', 'title': 'q1', 'text': 'The mill of Paris.'},
    *({'_id': f'd{i}', 'text': 'The river was in Rome.'} for i in range(3)),
  ]
  queries = {'q1': 'mill Paris', 'q2': 'crown', 'q3': 'river', 'q4': 'x'}
  root.mkdir()
  lines = {
    'corpus': documents,
    'queries': [{'_id': k, 'text': x} for k, x in queries.items()],
  }
  for name, found in lines.items():
    content = ''.join(json.dumps(row) + '\n' for row in found)
    (root / f'{name}.jsonl').write_text(content)
  if rows:
    (root / 'qrels').mkdir()
    (root / 'qrels/dev.tsv').write_text('query-id\tcorpus-id\tscore\n' + rows)
  return str(root)


def test_a_beir_folder_is_measured_by_documents(made, run, tmp_path):
  trec_eval = pytest.importorskip('pytrec_eval')
  rows = 'q1\tlong\t1\nq1\ta%26b\t3\nq2\tonly\t1\nq3\td1\t2\nq3\tgone\t1\n'
  root = _beir(tmp_path / 'places', rows)
  printed = run(beir=f'{root}:dev', depth=4, output=str(tmp_path))
  assert 'places:dev: 3 questions' in printed and 'R@100' not in printed
  assert _record(tmp_path)['judged_by'] == f'{root}/qrels/dev.tsv'
  qrels = {'q1': {'long': 1, 'a%26b': 3}, 'q2': {'only': 1}}
  qrels['q3'] = {'d1': 2, 'gone': 1}
  evaluator = trec_eval.RelevanceEvaluator(
    qrels, {'ndcg_cut', 'map', 'recip_rank', 'success'}
  )
  for row in _record(tmp_path)['retrievers']:
    stem = f'{tmp_path}/places_dev.{row["name"]}'
    found = trec_files.read_run(f'{stem}.run')
    assert 'q1' not in dict(found['q1'])
    if row['name'] == 'dense':
      assert [len(x) for x in found.values()] == [4 - 1, 4, 4]
    if row['name'] == 'bm25':
      assert [x for x, _ in found['q1']] == ['long', 'a%26b']
      first, second, _ = dpr_json.read_results(f'{stem}.json')
      assert first.contexts[0].text.endswith('1039.')
      assert second.contexts[0].text == 'The crown of Rome'
    with open(f'{stem}.run') as file:
      theirs = evaluator.evaluate(trec_eval.parse_run(file))
    for own, other in (
      ('nDCG@10', 'ndcg_cut_10'),
      ('AP', 'map'),
      ('RR', 'recip_rank'),
      ('Success@1', 'success_1'),
    ):
      want = np.mean([theirs[q][other] if q in theirs else 0 for q in qrels])
      assert row['measures'][own]['mean'] == pytest.approx(want), own


def test_queries_without_judgments_are_ranked_alone(made, run, tmp_path):
  root = _beir(tmp_path / 'places', '')
  embedder = sentence_folders.save(tmp_path / 'e', 'prompts')
  printed = run(
    beir=root, kinds=['dense'], embedder=str(embedder), output=str(tmp_path)
  )
  assert 'nDCG' not in printed and not list(tmp_path.glob('*.qrels'))
  ranked = trec_files.read_run(tmp_path / 'places_test.dense.run')
  assert list(ranked) == ['q1', 'q2', 'q3', 'q4']
  model = embedders.Embedder.load(embedder)
  [query], [document] = (
    model.embed_queries(['crown']),
    model.embed_texts(['\nThe crown of Rome']),
  )
  assert dict(ranked['q2'])['only'] == pytest.approx(query @ document, rel=1e-4)
  results = list(dpr_json.read_results(tmp_path / 'places_test.dense.json'))
  assert results[1].contexts[0].has_answer is None


@pytest.mark.parametrize(
  ('values', 'message'),
  [
    ({'beir': '{tmp}/none'}, 'none'),
    ({'beir': '{tmp}/places:train'}, 'train.tsv.*dev.tsv'),
    ({'beir': '{tmp}/places:dev'}, 'dev.tsv: judges none'),
  ],
)
def test_a_bad_beir_folder_is_refused(run, tmp_path, values, message):
  _beir(tmp_path / 'places', 'other\tlong\t1\n')
  with pytest.raises((ValueError, FileNotFoundError), match=message):
    run(**{x: y.format(tmp=tmp_path) for x, y in values.items()})


def test_blocks_of_a_run_are_read_in_a_retrievers_place(made, sets, tmp_path):
  blocks = loading.load(made.workdir, part='reader').data.blocks
  asked = sets[0].questions
  # The last question has no line.
  given = {x.id: [(blocks.names([7 - i])[0], 1.0)] for i, x in enumerate(asked)}
  given.popitem()
  path = tmp_path / 'given.run'
  trec_files.write_run(path, given, 'given')
  wanted = evaluators.Evaluate(
    questions=tiny_open_qa.sets(made.data)[:1], run=str(path)
  )
  config = configs.replaced(made.config, data_dir='')
  evaluators.evaluate(config, str(made.workdir), wanted)
  lines = (made.workdir / 'predictions_custom_test.jsonl').read_text()
  read = [json.loads(x).get('block') for x in lines.splitlines()]
  assert read == [*range(7, 7 - len(asked) + 1, -1), None]
  for change, error in (
    ({'questions': tiny_open_qa.sets(made.data)}, 'evaluate.run'),
    ({'questions': wanted.questions, 'run': str(path) + '2'}, 'given.run2'),
  ):
    (tmp_path / 'given.run2').write_text(f'{asked[0].id} Q0 nothing 1 1.0 x\n')
    with pytest.raises(ValueError, match=error):
      evaluators.evaluate(
        config, str(made.workdir), dataclasses.replace(wanted, **change)
      )
