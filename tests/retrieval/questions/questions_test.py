# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Files of questions in every form, and the errors of bad files."""

import gzip
import json
import lzma
import os

import pytest

from retrieval.questions import questions
from tests.retrieval.readers import tables

Q = questions.Question


def write(path, text):
  path.write_text(text, encoding='utf-8', newline='')
  return path


def squad(*records):
  paragraph = {'context': 'Rome is here.', 'qas': list(records)}
  return json.dumps({'data': [{'title': 't', 'paragraphs': [paragraph]}]})


def test_jsonl(tmp_path):
  path = write(
    tmp_path / 'q.jsonl',
    '\ufeff{"question": "who?", "answer": ["A", "B", "A"]}\r\n\n'
    '{"id": 7, "question": " why? ", "answers": ["\u00e9"], "more": 1}\n'
    '{"id": "x", "question": "when?", "golden_answers": ["now"]}',
  )
  assert questions.read_questions(path) == [
    Q('q.jsonl:1', 'who?', ('A', 'B')),
    Q('7', ' why? ', ('\u00e9',)),
    Q('x', 'when?', ('now',)),
  ]


def test_dpr_json_is_a_question_set(tmp_path):
  rows = [{'question': f'{x}?', 'answers': [x], 'ctxs': []} for x in 'ab']
  path = write(tmp_path / 'nq.JSON', json.dumps(rows, indent=1))
  assert questions.read_questions(path) == [
    Q('nq.JSON:1', 'a?', ('a',)),
    Q('nq.JSON:2', 'b?', ('b',)),
  ]


def test_webquestions(tmp_path):
  records = [{'qId': 'wq1', 'qText': 'who?', 'answers': ['A', 'B']}]
  path = write(tmp_path / 'q.json', '\n ' + json.dumps(records, indent=1))
  assert questions.read_questions(path) == [Q('wq1', 'who?', ('A', 'B'))]


def test_curatedtrec(tmp_path):
  path = write(
    tmp_path / 'q.tsv', '12\tfactoid\twho?\tA|\\\tB \r\n13\tx\thow?\t\\d+'
  )
  assert questions.read_questions(path) == [
    Q('12', 'who?', ('A|\\\tB ',), 'regex'),
    Q('13', 'how?', ('\\d+',), 'regex'),
  ]


def test_opentriviaqa_keeps_open_questions(tmp_path):
  lines = [
    {'question': 'who?', 'answer': ['A'], 'choices': [], 'open_domain': False},
    {'question': 'how?', 'answer': ['B'], 'choices': [], 'open_domain': True},
  ]
  path = tmp_path / 'q.jsonl.xz'
  path.write_bytes(lzma.compress('\n'.join(map(json.dumps, lines)).encode()))
  kept = Q('q.jsonl.xz:2', 'how?', ('B',))
  assert questions.read_questions(path) == [kept]


def test_squad(tmp_path):
  answers = [{'text': 'Rome', 'answer_start': 0}] * 3
  record = {'id': 'a1', 'question': 'where?', 'answers': answers}
  path = tmp_path / 'q.json.gz'
  path.write_bytes(gzip.compress(squad(record).encode()))
  assert questions.read_questions(path) == [Q('a1', 'where?', ('Rome',))]


LINE = '{"question": "q", "answer": ["a"]}'
BAD = (
  ('q.jsonl', f'{LINE}\n{{"question": "q"', r'jsonl:2: not JSON'),
  ('q.jsonl', '[1]', 'jsonl, record 1: .*found int'),
  ('q.jsonl', '{"answer": ["a"]}', "jsonl:1: .*'question'"),
  ('q.jsonl', '{"question": 3, "answer": ["a"]}', "jsonl:1: .*'question'"),
  ('q.jsonl', '{"question": " ", "answer": ["a"]}', "'question'"),
  (
    'q.jsonl',
    '{"question": "q", "a": 1}',
    "'answer', .* only .'a', 'question'.*jsonl",
  ),
  (
    'q.jsonl',
    '{"question": "q", "answer": ["a"], "answers": ["b"]}',
    r"found \['answer', 'answers'\].* as jsonl",
  ),
  ('q.json', '[{"question": "q", "ctxs": []}]', 'record 1: .* as jsonl'),
  ('q.jsonl', '{"question": "q", "answer": ["\\ud800"]}', r"'answer\[0\]'"),
  ('q.jsonl', f'{{"question": "{"q" * 2**23}", "answer": ["a"]}}', 'bytes'),
  ('q.jsonl', '{"question": "q", "answer": {"value": "a"}}', "'answer'"),
  ('q.jsonl', '{"question": "q", "answer": ["a", 7]}', r"'answer\[1\]'"),
  ('q.jsonl', '{"question": "q", "answer": ["\\t"]}', r"'answer\[0\]'"),
  (
    'q.jsonl',
    '{"id": 1, "question": "q", "answer": ["a"]}\n' * 2,
    "jsonl:2: .* id '1'",
  ),
  ('q.jsonl', '\n', 'no questions'),
  ('q.jsonl', f'{LINE[:-1]}, "open_domain": 1}}', "'open_domain'"),
  ('q.tsv', '1\tx\tq?', r'tsv:1: 3 fields'),
  ('q.tsv', 'q\t{[]:1}', r'tsv:1: '),
  ('q.tsv', '1\tx\tq?\t ', r"tsv:1: .*'regex"),
  ('q.json', '[{"qText": "1"}]', "record 1: .*'answers'.* as webquestions"),
  ('q.json', '[7]', r'record 1: .*found int'),
  ('q.json', '{"version": 1, "data": {}}', "'data'.* as squad"),
  (
    'q.json',
    squad({'id': 'a1', 'question': 'q', 'answers': [{'start': 0}]}),
    r"question a1: .*'answers\[0\]'",
  ),
  ('q.json', '', 'no questions'),
  ('q.csv', f'q\t["a"]\nq\t["{"a" * 140_000}"]', r'csv:2: not CSV'),
  ('q.txt', 'a', r"'\.txt'"),
  ('q.xz', 'a', "''"),
)


@pytest.mark.parametrize(('name', 'text', 'message'), BAD)
def test_bad_files_are_named(tmp_path, name, text, message):
  path = write(tmp_path / name, text)
  with pytest.raises(ValueError, match=message) as error:
    questions.read_questions(path)
  assert str(path) in str(error.value) and '\n' not in str(error.value)


def test_files_that_cannot_be_read(tmp_path):
  with pytest.raises(FileNotFoundError, match='q.jsonl'):
    questions.read_questions(tmp_path / 'q.jsonl')
  os.mkfifo(tmp_path / 'pipe.jsonl')
  with pytest.raises(FileNotFoundError, match='pipe.jsonl'):
    questions.read_questions(tmp_path / 'pipe.jsonl')
  path = tmp_path / 'q.jsonl.xz'
  path.write_bytes(lzma.compress(LINE.encode() * 999)[:-9])
  with pytest.raises(ValueError, match='cannot be read to its end'):
    questions.read_questions(path)


def _asked(path):
  found = questions.read_asked(path)
  assert not any(question.answers for question in found)
  return [(question.id, question.question) for question in found]


def test_asked_questions(tmp_path):
  plain, lines = tmp_path / 'a.txt', tmp_path / 'a.jsonl'
  plain.write_text('\ufeffWho? \n Where?\n\n')
  assert _asked(plain) == [('a.txt:1', 'Who?'), ('a.txt:2', 'Where?')]
  lines.write_text('{"question": " Who?", "id": 7}\n{"question": "Where?"}\n')
  assert _asked(lines) == [('7', 'Who?'), ('a.jsonl:2', 'Where?')]
  lines.write_text('{"_id": "q1", "text": "Who?", "metadata": {}}')
  assert _asked(lines) == [('q1', 'Who?')]  # of BEIR
  lines.write_text('{"query": "Question: Who?\\nAnswer: "}')
  assert _asked(lines) == [('a.jsonl:1', 'Question: Who?\nAnswer: ')]
  lines.write_text('{"question": "Who?", "id": null}')
  assert _asked(lines) == [('a.jsonl:1', 'Who?')]
  for bad in ('[1]', 'true', '""'):
    lines.write_text(f'{{"question": "Who?", "id": {bad}}}')
    with pytest.raises(ValueError, match="a.jsonl:1: field 'id'"):
      _asked(lines)
  lines.write_text('{"question": "Who?", "id": 7}\n' * 2)
  with pytest.raises(ValueError, match="a.jsonl:2: .*'7'"):
    _asked(lines)
  plain.write_text('x' * 2**23)
  with pytest.raises(ValueError, match='a.txt:1: .*bytes'):
    _asked(plain)


def test_answers_in_the_forms_that_people_have(tmp_path):
  rows = [
    {'id': 'a', 'question': 'q', 'answers': 'x'},
    {'id': 'b', 'question': 'q', 'answers': {'text': ['x', 'y'], 'start': [0]}},
    {'id': 'c', 'question': 'q', 'answer': {'aliases': ['x'], 'value': 'x'}},
    {'id': 'd', 'question': 'q', 'answers': []},
  ]
  text = ''.join(json.dumps(row) + '\n' for row in rows)
  found = questions.read_questions(write(tmp_path / 'q.jsonl', text))
  assert [x.answers for x in found] == [('x',), ('x', 'y'), ('x',), ()]


@pytest.mark.parametrize('suffix', ['parquet', 'arrow'])
def test_questions_of_a_table(tmp_path, suffix):
  rows = [
    {'id': 7, 'question': 'q', 'answers': {'text': ['x'], 'start': [0]}},
    {'id': 8, 'question': 'r', 'answers': {'text': [], 'start': []}},
  ]
  path = tables.write(tmp_path / f'q.{suffix}', rows)
  found = questions.read_questions(path)
  assert [(x.id, x.answers) for x in found] == [('7', ('x',)), ('8', ())]
  tables.write(path, [{'question': 'q'}])
  with pytest.raises(ValueError, match=f'q.{suffix}, record 1: .*answers'):
    questions.read_questions(path)


def test_questions_of_msmarco(tmp_path):
  path = write(tmp_path / 'queries.tsv', '1048585\twho is\tit\n2\twhy\n')
  found = questions.read_asked(path)
  assert [(x.id, x.question) for x in found] == [
    ('1048585', 'who is\tit'),
    ('2', 'why'),
  ]
  with pytest.raises(ValueError, match='tsv:1'):
    questions.read_asked(write(path, 'why\n'))
