# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Question sets know their splits, counts, forms and scorers."""

import dataclasses
import functools
import json

import farmhash
import pytest

from retrieval.questions import question_sets, red_trivia
from retrieval.readers import tfds
from tests.retrieval.readers import tiny_tfds

_QUESTIONS = [f'who was king number {i} of the realm?' for i in range(60)]


def _tenth(question):
  return farmhash.Fingerprint64(question) % 100_000 % 10


def _jsonl(path, questions, **fields):
  lines = [{'question': q, 'answer': ['A'], **fields} for q in questions]
  path.write_text('\n'.join(map(json.dumps, lines)))
  return path


def _web(path, questions):
  rows = [{'qId': q, 'qText': q, 'answers': ['A']} for q in questions]
  path.write_text(json.dumps(rows))
  return path


def _trec(path, questions):
  lines = [f'{i}\tx\t{q}\tA\\b' for i, q in enumerate(questions)]
  path.write_text('\n'.join(lines))
  return path


def _texts(question_set):
  return [q.question for q in question_set.questions]


def _load(spec):
  return question_sets.load(spec, allow_other_counts=True)


def test_training_files_are_split_by_hash(tmp_path):
  files = [
    _web(tmp_path / 'a.json', _QUESTIONS[:20]),
    _web(tmp_path / 'b.json', _QUESTIONS[20:]),
  ]
  paths = ','.join(map(str, files))
  train, dev, test = (
    _load(f'webquestions:{split}={paths}') for split in ('train', 'dev', 'test')
  )
  wanted = [q for q in _QUESTIONS if _tenth(q) == 0]
  assert _texts(dev) == wanted and 0 < len(wanted) < 20
  assert _texts(train) == [q for q in _QUESTIONS if _tenth(q)]
  assert _texts(test) == _QUESTIONS  # Has files of its own.
  assert (train.name, train.kind) == ('webquestions:train', 'string')
  # Files that are split already stay as they are.
  again = _jsonl(tmp_path / 'dev.jsonl', wanted)
  assert _texts(_load(f'nq_open:dev={again}')) == wanted


def test_hashed_splits(tmp_path):
  path = _jsonl(tmp_path / 'a.jsonl', _QUESTIONS, open_domain=True)
  for split, tenths in (
    ('dev', [0]),
    ('test', [1]),
    ('train', range(2, 10)),
    ('all', range(10)),
  ):
    found = _load(f'opentriviaqa:{split}={path}')
    assert _texts(found) == [q for q in _QUESTIONS if _tenth(q) in tenths]


def test_counts(tmp_path, monkeypatch, caplog):
  dataset = dataclasses.replace(
    question_sets.DATASETS['curatedtrec'],
    counts=(5, 3, 2),
    other_counts={'test': 4},
  )
  monkeypatch.setitem(question_sets.DATASETS, 'curatedtrec', dataset)
  for number in (2, 3, 4):
    path = _trec(tmp_path / f'{number}.tsv', _QUESTIONS[:number])
    spec = f'curatedtrec:test={path}'
    if number == 3:
      with pytest.raises(ValueError, match=r'has 2 questions, .*3.tsv gave 3'):
        question_sets.load(spec)
      assert len(_load(spec).questions) == 3
    else:
      assert len(question_sets.load(spec).questions) == number
  # A known other copy is taken, and said.
  assert 'has 2 questions' in caplog.text and '4.tsv gave 4' in caplog.text
  assert '2.tsv' not in caplog.text


def test_score_is_the_sets_own(tmp_path):
  path = tmp_path / 'a.jsonl'
  path.write_text(json.dumps({'question': 'q', 'answer': ['Caf\u00e9.*']}))
  strings, patterns = (
    _load(f'{name}={path}') for name in ('custom', 'custom_regex')
  )
  (question,) = strings.questions
  assert strings.score('the Cafe\u0301', question) == {
    'official_exact_match': 1.0,
    'contains': 1.0,
    'exact_match_without_nfd': 0.0,
    'f1': 1.0,
  }
  longer = strings.score('Caf\u00e9 Noir', question)
  assert (longer['official_exact_match'], longer['contains']) == (0, 1)
  (pattern,) = patterns.questions
  for text, official in ('caf\u00e9 Noir', 1), ('Le caf\u00e9', 0):
    assert patterns.score(text, pattern) == {
      'official_exact_match': official, 'contains': 1
    }  # fmt: skip


def test_repeated_questions_keep_ids(tmp_path):
  folders = []
  for name in 'ab':
    (tmp_path / name).mkdir()
    folders.append(_jsonl(tmp_path / name / 'q.jsonl', ['who?', 'who?']))
  found = _load(f'custom:x={folders[0]},{folders[1]}')
  ids = [q.id for q in found.questions]
  assert ids == ['q.jsonl:1', 'q.jsonl:2', '1/q.jsonl:1', '1/q.jsonl:2']
  assert found.by_text == {'who?': found.questions}
  assert found.by_id['1/q.jsonl:2'] is found.questions[3]


def test_red_trivia(monkeypatch):
  asked = []

  def read(lists):
    asked.append(lists)
    return [
      question_sets.question_files.Question(str(i), q, ('A',))
      for i, q in enumerate(_QUESTIONS)
    ]

  monkeypatch.setattr(red_trivia, 'read', read)
  for spec, lists, tenths in (
    ('red_trivia', (), range(10)),
    ('red_trivia:elements,general', ('elements', 'general'), range(10)),
    ('red_trivia:dev', (), [0]),
    ('red_trivia:test=general', ('general',), [1]),
  ):
    found = question_sets.load(spec)
    assert asked.pop() == lists
    assert _texts(found) == [q for q in _QUESTIONS if _tenth(q) in tenths]


@pytest.mark.parametrize(
  ('spec', 'message'),
  [
    ('no_set:x=a', 'no_set'),
    ('webquestions=a.json', "split ''"),
    ('webquestions:all=a.json', "split 'all'"),
    ('webquestions:dev=', 'path is empty'),
    ('webquestions:dev=a,a', 'twice'),
    ('custom:dev', 'needs files'),
    ('webquestions:dev=none.json', 'none.json'),
  ],
)
def test_errors(spec, message):
  with pytest.raises((ValueError, FileNotFoundError), match=message) as error:
    question_sets.load(spec)
  assert '\n' not in str(error.value)


@pytest.fixture(scope='module')
def tfds_dir(tmp_path_factory):
  features = lambda f: {  # noqa: E731
    'question': f.Text(),
    'answer': {'aliases': f.Sequence(f.Text()), 'value': f.Text()},
    'answers': f.Sequence({'text': f.Text()}),
  }
  answers = {
    'answer': {'aliases': ['A', 'B', 'A'], 'value': 'A'},
    'answers': [{'text': 'C'}, {'text': 'D'}],
  }
  splits = {
    split: [{'question': x, **answers} for x in questions]
    for split, questions in (
      ('train', _QUESTIONS),
      ('validation', ['who \u00e9?']),
    )
  }
  return tiny_tfds.prepare(tmp_path_factory.mktemp('tfds'), features, splits)


def test_tfds(tfds_dir, monkeypatch):
  read = functools.partial(tfds.load_source, data_dir=tfds_dir)
  monkeypatch.setattr(tfds, 'load_source', read)
  for name, answers in (('triviaqa', ('A', 'B')), ('squad_open', ('C', 'D'))):
    dataset = question_sets.DATASETS[name]
    places = ('tiny_rows', 'validation', *dataset.tfds[2:])
    dataset = dataclasses.replace(dataset, counts=(), tfds=places)
    monkeypatch.setitem(question_sets.DATASETS, name, dataset)
    dev = question_sets.load(f'{name}:dev')
    assert sorted(_texts(dev)) == sorted(
      q for q in _QUESTIONS if _tenth(q) == 0
    )
    assert {q.answers for q in dev.questions} == {answers}
    (test,) = question_sets.load(f'{name}:test').questions
    assert test.question == 'who \u00e9?'
    assert test.id == 'tiny_rows[validation]:0'


def test_hash_is_farmhash_1_1():
  """Golden values of two branches of the hash, and of characters beyond ASCII."""
  for text, value in {
    'who': 18111496945197663903,
    'who wrote the or': 16949404967517093385,
    'o\u00f9 est n\u00e9 moli\u00e8re ?': 13809448554737646695,
  }.items():
    assert farmhash.Fingerprint64(text) == value


def test_questions_without_an_answer(tmp_path):
  """Left out of training; kept where silence is measured, and then right."""
  qas = [
    {'id': 'a', 'question': 'Who?', 'answers': [{'text': 'Ann'}]},
    {'id': 'b', 'question': 'Why?', 'answers': [], 'is_impossible': True},
  ]
  path = tmp_path / 'squad.json'
  paragraphs = [{'context': 'Ann.', 'qas': qas}]
  path.write_text(
    json.dumps({'version': 'v2.0', 'data': [{'paragraphs': paragraphs}]})
  )
  spec = f'custom:dev={path}'
  assert [x.id for x in question_sets.load(spec).questions] == ['a']
  found = question_sets.load(spec, unanswerable=True)
  assert [x.id for x in found.questions] == ['a', 'b']
  assert set(found.score('', found.questions[1]).values()) == {1}
  assert not any(found.score('Ann', found.questions[1]).values())
  qas.pop(0)
  path.write_text(json.dumps({'data': [{'paragraphs': paragraphs}]}))
  with pytest.raises(ValueError, match='no question has an answer'):
    question_sets.load(spec)


@pytest.mark.parametrize('form', ['red_trivia:dev', 'nq_open:dev', 'tsv'])
def test_a_field_of_answers_is_of_json_and_tables(tmp_path, form):
  path = tmp_path / 'asked.tsv'
  path.write_text('who?\t["me"]\n')
  spec = f'custom:x={path}' if form == 'tsv' else form
  with pytest.raises(ValueError, match='answer_field'):
    question_sets.load(spec, answer_field='target')
