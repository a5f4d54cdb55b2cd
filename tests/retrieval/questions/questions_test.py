# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Files of questions in every form, and the errors of bad files."""

import gzip
import json
import lzma
import os

import pytest

from retrieval.questions import questions

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
    '{"id": 7, "question": " why? ", "answers": ["\u00e9"], "more": 1}',
  )
  assert questions.read_questions(path) == [
    Q('q.jsonl:1', 'who?', ('A', 'B')),
    Q('7', ' why? ', ('\u00e9',)),
  ]


def test_webquestions(tmp_path):
  records = [{'qId': 'wq1', 'qText': 'who?', 'answers': ['A', 'B']}]
  path = write(tmp_path / 'q.json', '\n ' + json.dumps(records, indent=1))
  wanted = [Q('wq1', 'who?', ('A', 'B'))]
  assert questions.read_questions(path) == wanted
  assert questions.read_questions(path, 'webquestions') == wanted


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
  everything = questions.read_questions(path, 'jsonl')
  assert [q.question for q in everything] == ['who?', 'how?']
  assert everything[1] == kept


def test_squad(tmp_path):
  answers = [{'text': 'Rome', 'answer_start': 0}] * 3
  record = {'id': 'a1', 'question': 'where?', 'answers': answers}
  path = tmp_path / 'q.json.gz'
  path.write_bytes(gzip.compress(squad(record).encode()))
  assert questions.read_questions(path) == [Q('a1', 'where?', ('Rome',))]


LINE = '{"question": "q", "answer": ["a"]}'
BAD = (
  ('q.jsonl', f'{LINE}\n{{"question": "q"', r'q\.jsonl:2: not JSON'),
  ('q.jsonl', '[1]', r'q\.jsonl:1: expected a JSON object, found list'),
  ('q.jsonl', '{"answer": ["a"]}', r"q\.jsonl:1: no field 'question'"),
  (
    'q.jsonl',
    '{"question": 3, "answer": ["a"]}',
    r"q\.jsonl:1: field 'question' is int, expected a string",
  ),
  ('q.jsonl', '{"question": " ", "answer": ["a"]}', "'question' is blank"),
  (
    'q.jsonl',
    '{"question": "q", "a": 1}',
    r"expected a field 'answer' or 'answers', found \['a', 'question'\]",
  ),
  (
    'q.jsonl',
    '{"question": "q", "answer": ["a"], "answers": ["b"]}',
    "expected a field 'answer' or 'answers'",
  ),
  (
    'q.jsonl',
    '{"question": "q", "answer": "a"}',
    "field 'answer': expected a list, found str",
  ),
  (
    'q.jsonl',
    '{"question": "q", "answer": []}',
    'expected at least one answer',
  ),
  (
    'q.jsonl',
    '{"question": "q", "answer": ["a", 7]}',
    r"field 'answer\[1\]' is int, expected a string",
  ),
  (
    'q.jsonl',
    '{"question": "q", "answer": ["\\t"]}',
    r"field 'answer\[0\]' is blank",
  ),
  (
    'q.jsonl',
    '{"id": 1, "question": "q", "answer": ["a"]}\n' * 2,
    r"q\.jsonl:2: id '1' stood at .*q\.jsonl:1 already",
  ),
  ('q.jsonl', '\n', r'q\.jsonl: no questions; read as jsonl'),
  (
    'q.jsonl',
    f'{LINE[:-1]}, "open_domain": 1}}',
    r"field 'open_domain': expected true or false, found 1",
  ),
  (
    'q.tsv',
    '1\tx\tq?',
    r'q\.tsv:1: 3 fields, expected id, type, question, reg',
  ),
  ('q.tsv', '1\tx\tq?\t ', r"q\.tsv:1: field 'regex' is blank"),
  ('q.json', '[{"qId": "1"}]', "record 1: field 'answers': expected a list"),
  ('q.json', '[7]', r'q\.json, record 1: expected a JSON object, found int'),
  ('q.json', '{"version": "1.1"}', r"'data': .* found only \['version'\]"),
  ('q.json', '{"data": [7]}', 'expected a JSON object, found int'),
  (
    'q.json',
    squad({'id': 'a1', 'question': 'q', 'answers': [{'start': 0}]}),
    r"question a1: field 'answers\[0\]' is NoneType, expected a string",
  ),
  (
    'q.json',
    squad(*[{'id': 'a1', 'question': 'q', 'answers': [{'text': 'a'}]}] * 2),
    "question a1: id 'a1' stood at .*question a1 already",
  ),
  ('q.json', '', r'q\.json: no questions; the file is empty\.'),
  ('q.json', '\ufeff \n\n', r'q\.json: no questions; the file is empty\.'),
  ('q.csv', f'q\t["a"]\nq\t["{"a" * 140_000}"]', r'q\.csv:2: not CSV \(field'),
  ('q.csv', 'q\r?\t["a"]', r'q\.csv:1: not CSV \(new-line'),
  ('q.txt', 'a', r"the kind is not known by '\.txt'; name one of"),
  ('q.xz', 'a', "the kind is not known by ''; name one of"),
)


def test_errors_of_files(tmp_path):
  with pytest.raises(FileNotFoundError, match='q.jsonl'):
    questions.read_questions(tmp_path / 'q.jsonl')
  (tmp_path / 'folder.jsonl').mkdir()
  os.mkfifo(tmp_path / 'pipe.jsonl')
  for name in ('folder', 'pipe'):
    with pytest.raises(FileNotFoundError, match=f'{name}.jsonl'):
      questions.read_asked(tmp_path / f'{name}.jsonl')
  path = write(tmp_path / 'q.jsonl', LINE)
  with pytest.raises(ValueError, match="kind 'lines': expected auto or one"):
    questions.read_questions(path, 'lines')
  path = tmp_path / 'q.jsonl.xz'
  path.write_bytes(lzma.compress(LINE.encode() * 999)[:-9])
  with pytest.raises(ValueError, match='cannot be read to its end'):
    questions.read_questions(path)
  path = tmp_path / 'latin.jsonl'
  path.write_bytes('{"question": "\u00e9"}'.encode('latin-1'))
  with pytest.raises(
    ValueError, match='latin.jsonl:1: byte 14 .* is not UTF-8'
  ):
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
