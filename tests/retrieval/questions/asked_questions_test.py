# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Questions without answers, as they are asked from files."""

import pytest

from retrieval.questions import asked_questions


def _read(path):
  found = asked_questions.read(path)
  assert not any(question.answers for question in found)
  return [(question.id, question.question) for question in found]


def test_plain_and_json_lines(tmp_path):
  plain, lines = tmp_path / 'a.txt', tmp_path / 'a.jsonl'
  plain.write_text('\ufeffWho? \n Where?\n\n')
  assert _read(plain) == [('a.txt:1', 'Who?'), ('a.txt:2', 'Where?')]
  lines.write_text('{"question": " Who?", "id": 7}\n{"question": "Where?"}\n')
  assert _read(lines) == [('7', 'Who?'), ('a.jsonl:2', 'Where?')]


@pytest.mark.parametrize(
  ('name', 'text', 'message'),
  [
    ('a.txt', 'Who?\n \nWhere?\n', r'a.txt:2: the line is empty'),
    ('a.txt', '\n\n', 'a.txt: no questions'),
    ('a.csv', 'Who?', 'ends in .txt or .jsonl'),
    ('a.jsonl', '{"question": "Who?"}\n{"q": "x"}', "a.jsonl:2: no field 'qu"),
    ('a.jsonl', '{"question": 3}', "a.jsonl:1: .*'question'"),
    ('a.jsonl', '{"question": " "}', 'a.jsonl:1: .* is empty'),
    ('a.jsonl', '["Who?"]', 'a.jsonl:1: expected a JSON object'),
    ('a.jsonl', 'Who?', 'a.jsonl:1: not JSON'),
  ],
)
def test_bad_files_are_named_by_line(tmp_path, name, text, message):
  (tmp_path / name).write_text(text)
  with pytest.raises(ValueError, match=message) as error:
    asked_questions.read(tmp_path / name)
  assert '\n' not in str(error.value)
