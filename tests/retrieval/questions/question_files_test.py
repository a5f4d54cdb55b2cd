# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Files of questions in every form, and the errors of bad files."""

import gzip
import json
import lzma

import pytest

from retrieval.questions import question_files
from tests.retrieval.readers import tables

Q = question_files.Question


def write(path, text):
  path.write_text(text, encoding='utf-8', newline='')
  return path


def squad(*records):
  paragraph = {'context': 'Rome is here.', 'qas': list(records)}
  return json.dumps({'data': [{'title': 't', 'paragraphs': [paragraph]}]})


_SQUAD = {'answers': [{'text': 'Rome', 'answer_start': 0}] * 3}
_ALIASES = {'Aliases': ['A', ' ', 'B'], 'Value': 'A'}
_TRIVIA = {'QuestionId': 'tc_1', 'Question': 'who?', 'Answer': _ALIASES}
_OPEN = {'question': 'how?', 'answer': ['B'], 'choices': []}
# fmt: off
FORMS = {
  'jsonl': ('q.jsonl',
    '\ufeff{"question": "who?", "answer": ["A", "B", "A"]}\r\n\n'
    '{"id": 7, "question": " why? ", "answers": ["\u00e9"], "more": 1}\n'
    '{"id": "x", "question": "when?", "golden_answers": ["now"]}',
    [Q('q.jsonl:1', 'who?', ('A', 'B')), Q('7', ' why? ', ('\u00e9',)),
     Q('x', 'when?', ('now',))]),
  'answers as people write them': ('q.jsonl',
    '{"id": "a", "question": "q", "answers": "x"}\n'
    '{"id": "b", "question": "q", "answers": {"text": ["x", "y"], "start": [0]}}\n'
    '{"id": "c", "question": "q", "answer": {"aliases": ["x"], "value": "x"}}\n'
    '{"id": "d", "question": "q", "answers": []}\n'
    '{"id": "e", "question": "q", "answer": {"value": "x", "aliases": []}}\n'
    '{"id": "f", "question": "q", "answers": "[\\"x\\", \\"y\\"]"}\n'
    '{"id": "g", "question": "q", "answers": ["[\'x\', \'y\']", "[z]"]}\n'
    '{"id": "h", "question": "q", "answers": ["x"], "is_impossible": true}\n'
    '{"id": "i", "question": "q", "answers": "[1, 2]", "is_impossible": false}',
    [Q('a', 'q', ('x',)), Q('b', 'q', ('x', 'y')), Q('c', 'q', ('x',)),
     Q('d', 'q', ()), Q('e', 'q', ('x',)), Q('f', 'q', ('x', 'y')),
     Q('g', 'q', ('x', 'y', '[z]')), Q('h', 'q', ()), Q('i', 'q', ('[1, 2]',))]),
  'dpr': ('nq.JSON',
    json.dumps([{'question': f'{x}?', 'answers': [x], 'ctxs': []} for x in 'ab'],
               indent=1),
    [Q('nq.JSON:1', 'a?', ('a',)), Q('nq.JSON:2', 'b?', ('b',))]),
  'webquestions': ('q.json',
    '\n [{\n"qId": "wq1", "qText": "who?",\n"answers": ["A", "B"]}]',
    [Q('wq1', 'who?', ('A', 'B'))]),
  'curatedtrec': ('q.tsv', '12\tfactoid\twho?\tA|\\\tB \r\n13\tx\thow?\t\\d+',
    [Q('12', 'who?', ('A|\\\tB ',), 'regex'), Q('13', 'how?', ('\\d+',), 'regex')]),
  'opentriviaqa': ('q.jsonl.xz',
    '\n'.join(json.dumps({**_OPEN, 'open_domain': x}) for x in (False, True)),
    [Q('q.jsonl.xz:2', 'how?', ('B',))]),
  'squad': ('q.json.gz', squad({'id': 'a1', 'question': 'where?', **_SQUAD}),
    [Q('a1', 'where?', ('Rome',))]),
  'triviaqa': ('q.json', json.dumps({'Data': [_TRIVIA], 'Domain': 'x'}, indent=2),
    [Q('tc_1', 'who?', ('A', 'B'))]),
  'triviaqa without aliases': ('q.json',
    json.dumps({'Data': [{**_TRIVIA, 'Answer': {'Aliases': [' '], 'Value': 'A'}}]}),
    [Q('tc_1', 'who?', ('A',))]),
  'dpr_qas': ('nq-test.qas.csv', 'who?\t[\'A\', "B\'s"]\nwhy?\t"[""C""]"\n',
    [Q('nq-test.qas.csv:1', 'who?', ('A', "B's")),
     Q('nq-test.qas.csv:2', 'why?', ('C',))]),
}
# fmt: on
PACK = {'.xz': lzma.compress, '.gz': gzip.compress}


@pytest.mark.parametrize(
  ('name', 'text', 'expected'), FORMS.values(), ids=FORMS
)
def test_every_form(tmp_path, name, text, expected):
  path = tmp_path / name
  path.write_bytes(PACK.get(path.suffix, bytes)(text.encode()))
  assert question_files.read_questions(path) == expected


LINE = '{"question": "q", "answer": ["a"]}'
BAD = (
  ('q.jsonl', f'{LINE}\n{{"question": "q"', r'jsonl:2: not JSON'),
  ('q.jsonl', '[1]', 'jsonl, record 1: int'),
  ('q.jsonl', '{"answer": ["a"]}', "jsonl:1: .*'question'"),
  ('q.jsonl', '{"question": " ", "answer": ["a"]}', "'question'"),
  (
    'q.jsonl',
    '{"question": "q", "a": 1}',
    "'answer', .* only .'a', 'question'.*jsonl",
  ),
  (
    'q.jsonl',
    '{"question": "q", "answer": ["a"], "answers": ["b"]}',
    r"not \['answer', 'answers'\].* as jsonl",
  ),
  ('q.json', '[{"question": "q", "ctxs": []}]', 'record 1: .* as jsonl'),
  ('q.jsonl', '{"question": "q", "answer": ["\\ud800"]}', r"'answer\[0\]'"),
  ('q.jsonl', f'{{"question": "{"q" * 2**23}", "answer": ["a"]}}', 'bytes'),
  ('q.jsonl', '{"question": "q", "answer": ["\\t"]}', r"'answer\[0\]'"),
  (
    'q.jsonl',
    '{"id": 1, "question": "q", "answer": ["a"]}\n' * 2,
    "jsonl:2: .* id '1'",
  ),
  ('q.jsonl', '{"question": "q", "answer": "[\'a\' \'b\']"}', "'answer'"),
  ('q.jsonl', '\n', 'no questions'),
  ('q.jsonl', f'{LINE[:-1]}, "open_domain": 1}}', "'open_domain'"),
  ('q.tsv', '1\tx\tq?', r'tsv:1: 3 fields'),
  ('q.tsv', 'q\t{[]:1}', r'tsv:1: '),
  ('q.tsv', '1\tx\tq?\t ', r"tsv:1: .*'regex"),
  ('q.json', '[{"qText": "1"}]', "record 1: .*'answers'.* as webquestions"),
  ('q.json', '{"version": 1, "data": {}}', "'data'.* as squad"),
  (
    'q.json',
    squad({'id': 'a1', 'question': 'q', 'answers': [{'start': 0}]}),
    r"question a1: .*'answers\[0\]'",
  ),
  ('q.csv', 'who?\tA\n', "csv:1: .*'answers'"),
  ('q.csv', f'q\t["a"]\nq\t["{"a" * 140_000}"]', r'csv:2: not CSV'),
  ('q.txt', 'a', r"'\.txt'"),
)


@pytest.mark.parametrize(('name', 'text', 'message'), BAD)
def test_bad_files_are_named(tmp_path, name, text, message):
  path = write(tmp_path / name, text)
  with pytest.raises(ValueError, match=message) as error:
    question_files.read_questions(path)
  assert str(path) in str(error.value) and '\n' not in str(error.value)


# fmt: off
ASKED = [
  ('a.txt', '\ufeffWho? \n Where?\n\n', [('a.txt:1', 'Who?'), ('a.txt:2', 'Where?')]),
  ('a.jsonl', '{"question": " Who?", "id": 7}\n{"question": "Where?"}\n',
   [('7', 'Who?'), ('a.jsonl:2', 'Where?')]),
  ('a.jsonl', '{"_id": "q1", "text": "Who?", "metadata": {}}',  # of BEIR
   [('q1', 'Who?')]),
  ('a.jsonl', '{"query": "Question: Who?\\nAnswer: "}',
   [('a.jsonl:1', 'Question: Who?\nAnswer: ')]),
  ('a.jsonl', '{"question": "Who?", "id": null}', [('a.jsonl:1', 'Who?')]),
  ('a.tsv', '1048585\twho is\tit\n2\twhy\n',  # of MS MARCO
   [('1048585', 'who is\tit'), ('2', 'why')]),
  ('a.jsonl', '{"question": "Who?", "id": [1]}', "a.jsonl:1: field 'id'"),
  ('a.jsonl', '{"question": "Who?", "id": true}', "a.jsonl:1: field 'id'"),
  ('a.jsonl', '{"question": "Who?", "id": ""}', "a.jsonl:1: field 'id'"),
  ('a.jsonl', '{"question": "Who?", "id": 7}\n' * 2, "a.jsonl:2: .*'7'"),
  ('a.txt', 'x' * 2**23, 'a.txt:1: .*bytes'),
  ('a.tsv', 'why\n', 'tsv:1'),
]
# fmt: on


@pytest.mark.parametrize(('name', 'text', 'expected'), ASKED)
def test_asked_questions(tmp_path, name, text, expected):
  path = write(tmp_path / name, text)
  if isinstance(expected, str):
    with pytest.raises(ValueError, match=expected):
      question_files.read_asked(path)
  else:
    assert question_files.read_asked(path) == [Q(*x, ()) for x in expected]


@pytest.mark.parametrize('suffix', ['parquet', 'arrow'])
def test_questions_of_a_table(tmp_path, suffix):
  rows = [
    {'id': 7, 'question': 'q', 'answers': {'text': ['x'], 'start': [0]}},
    {'id': 8, 'question': 'r', 'answers': {'text': [], 'start': []}},
  ]
  path = tables.write(tmp_path / f'q.{suffix}', rows)
  rows = question_files.read_questions(path)
  assert [(x.id, x.answers) for x in rows] == [('7', ('x',)), ('8', ())]
  tables.write(path, [{'question': 'q'}])
  with pytest.raises(ValueError, match=f'q.{suffix}, record 1: .*answers'):
    question_files.read_questions(path)
