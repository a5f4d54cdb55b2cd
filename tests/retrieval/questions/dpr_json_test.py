# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""DPR's JSON is read from whoever wrote it, and written as DPR does."""

import dataclasses
import json

import pytest

from retrieval.questions import dpr_json, scoring

Context = dpr_json.Context

_CONTEXT = {
  'id': 'wiki:7',
  'title': 'Lima',
  'text': 'Lima is in Per\u00fa.',
  'score': '81.5',
  'has_answer': True,
}
_RESULT = {'question': 'where?', 'answers': ['Per\u00fa'], 'ctxs': [_CONTEXT]}


def _write(path, value, **options):
  path.write_text(json.dumps(value, **options), encoding='utf-8')
  return path


@pytest.mark.parametrize('options', [{}, {'indent': 4, 'ensure_ascii': False}])
def test_results(tmp_path, options):
  bare = {'question': 'why?', 'ctxs': [{'id': 3, 'title': None, 'text': 'T'}]}
  path = _write(tmp_path / 'r.json', [_RESULT, bare], **options)
  context = Context(
    id='wiki:7',
    title='Lima',
    text='Lima is in Per\u00fa.',
    score=81.5,
    has_answer=True,
  )
  assert list(dpr_json.read_results(path)) == [
    dpr_json.Result(
      question='where?', answers=('Per\u00fa',), contexts=(context,)
    ),
    dpr_json.Result(question='why?', contexts=(Context(id='3', text='T'),)),
  ]


def test_one_passage_is_a_result_with_one_context(tmp_path):
  record = {'question': 'where?', 'answers': ['Peru'], 'context': 'Peru, Lima'}
  marked = record | {'title': 'Lima', 'answer_start': [0]}
  path = _write(tmp_path / 'r.json', [record, marked | {'id': 3}])
  bare, full = dpr_json.read_results(path)
  assert bare.contexts == (Context(text='Peru, Lima'),)
  wanted = Context(title='Lima', text='Peru, Lima', answer_start=(0,))
  assert full.contexts == (wanted,) and full.answers == ('Peru',)
  path = _write(tmp_path / 'r.json', [marked | {'answer_start': ['0']}])
  with pytest.raises(ValueError, match='answer_start'):
    list(dpr_json.read_results(path))


def test_results_are_written_as_dpr_does(tmp_path):
  path = _write(tmp_path / 'r.json', [_RESULT, _RESULT])
  results = list(dpr_json.read_results(path))
  copy = tmp_path / 'made' / 'copy.json'
  dpr_json.write_results(copy, results)
  assert json.loads(copy.read_text(encoding='utf-8')) == [_RESULT, _RESULT]
  bare = dpr_json.Result(question='q', contexts=(Context(text='t'),))
  dpr_json.write_results(copy, [bare])
  assert list(dpr_json.read_results(copy)) == [bare]
  dpr_json.write_results(copy, [])
  assert json.loads(copy.read_text()) == []
  assert [p.name for p in copy.parent.iterdir()] == ['copy.json']


def test_results_in_the_forms_of_other_tools(tmp_path):
  contexts = (
    Context(id='1', title='T', text='one', score=2.0),
    Context(id='2', text='two', score=1.0),
  )
  results = [
    dpr_json.Result(question='where?', answers=('Peru',), contexts=contexts),
    dpr_json.Result(question='why?', contexts=contexts[1:]),
  ]
  path = tmp_path / 'r.jsonl'
  dpr_json.write_results(path, results, 'rag_harness')
  lines = [json.loads(line) for line in path.read_text().splitlines()]
  assert [line['query'] for line in lines] == ['where?', 'why?']
  texts = [context['retrieval text'] for context in lines[0]['ctxs']]
  assert texts == ['one', 'two']
  assert list(dpr_json.read_results(path)) == results
  path = tmp_path / 'r.json'
  dpr_json.write_results(path, [*results, results[0]], 'flashrag')
  cache = json.loads(path.read_text())
  assert [*cache] == ['where?', 'why?']
  assert cache['where?'][0] == {
    'id': '1', 'title': 'T', 'text': 'one', 'contents': 'T\none', 'score': 2.0
  }  # fmt: skip
  plain = [dataclasses.replace(results[0], answers=()), results[1]]
  assert list(dpr_json.read_results(path)) == plain
  path.write_text(json.dumps(cache, indent=4))
  assert list(dpr_json.read_results(path)) == plain
  contents = {'id': '1', 'contents': 'T\none', 'score': 2.0}
  item = {'question': 'where?', 'golden_answers': ['Peru']}
  item['output'] = {'retrieval_result': [contents], 'pred': 'Lima'}
  path.write_text(json.dumps([item]))
  [found] = dpr_json.read_results(path)
  assert found == dataclasses.replace(results[0], contexts=contexts[:1])
  [prediction] = scoring.read_predictions(path)
  assert prediction['prediction'] == 'Lima'


def _with(**fields):
  return json.dumps([_RESULT, {**_RESULT, **fields}])


def _context(**fields):
  return _with(ctxs=[_CONTEXT, {**_CONTEXT, **fields}])


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    ('', 'no records'),
    ('[]', 'no records'),
    (json.dumps([_RESULT])[:-9], 'record 1: not JSON'),
    ('[{"question": "q"}]', "record 1: .*'ctxs'"),
    (_with(question=3), "record 2: .*'question'"),
    (_with(answers=[2]), r"record 2: .*'answers\[0\]'"),
    (_with(ctxs=['t']), r'record 2, ctxs\[0\]'),
    (_context(text=None), r"record 2, ctxs\[1\]: .*'text'"),
    (_context(score='high'), r"ctxs\[1\]: .*'score'.*'high'"),
    (_context(score='nan'), r"ctxs\[1\]: .*'score'"),
    (_context(has_answer='yes'), r"ctxs\[1\]: .*'has_answer'"),
  ],
)
def test_errors_name_the_record(tmp_path, text, message):
  path = tmp_path / 'r.json'
  path.write_text(text)
  with pytest.raises(ValueError, match=message) as error:
    list(dpr_json.read_results(path))
  assert str(path) in str(error.value) and '\n' not in str(error.value)
