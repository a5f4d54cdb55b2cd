# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Errors name the file and line of a bad document; skipped ones are counted."""

import json

import pytest

from tests.retrieval.text import json_corpus

JSONL, DOCUMENTS = json_corpus.JSONL, json_corpus.DOCUMENTS
article, squad = json_corpus.article, json_corpus.squad


# Line 1 is good; what stands on line 2 or 3 is not.
BAD = {
  'invalid JSON': (b'{"id": "x",', 'not JSON'),
  'invalid JSON (deep)': (b'[' * 100_000, 'not JSON'),
  'missing field text': (b'{"id": "x", "title": "t"}', "no field 'text'"),
  'wrong type of text': (
    b'{"id": "x", "title": "t", "text": 1}',
    "field 'text' is int, expected a string",
  ),
  'wrong type of id': (
    b'{"id": true, "title": "t", "text": "t"}',
    "field 'id' is bool",
  ),
  'too long': (b'x' * 500, 'corpus.max_record_bytes'),
  'invalid UTF-8': (b'{"id": "\xff"}', 'byte 8 (0xff) is not UTF-8'),
  'invalid UTF-8 (half)': (
    b'{"id": "x", "title": "t", "text": "\\ud83d"}',
    "field 'text' holds half a character",
  ),
  'duplicate id': (
    json_corpus.line(DOCUMENTS[0])[:-1],
    "id '1' is already used at ",
  ),
}


@pytest.mark.parametrize('case', BAD)
def test_a_bad_line_is_named_or_counted(tmp_path, case):
  line, message = BAD[case]
  path = tmp_path / 'a.jsonl'
  path.write_bytes(b'\n'.join([JSONL[:-1], line, line]) + b'\n')
  limit = 400_000 if '(deep)' in case else 400
  with pytest.raises(ValueError) as error:
    json_corpus.read('jsonl', path, max_record_bytes=limit)
  assert str(error.value).startswith(f'{path}:4: ')
  assert message in str(error.value)
  assert 'corpus.on_error=skip' in str(error.value)
  if case == 'duplicate id':
    assert f'used at {path}:1.' in str(error.value)
  skipping = json_corpus.opened(
    'jsonl', path, on_error='skip', max_record_bytes=limit
  )
  for _ in range(2):  # The counts are those of one iteration.
    assert list(skipping) == list(DOCUMENTS)
    assert skipping.skipped == {case.split(' (')[0]: 2}


def test_no_document_left(tmp_path):
  (tmp_path / 'a.jsonl').write_text('\n')
  with pytest.raises(ValueError, match='No document in'):
    json_corpus.read('jsonl', tmp_path)
  (tmp_path / 'a.jsonl').write_text('{}\n')
  with pytest.raises(ValueError, match=r"skipped: {'missing field id': 1}"):
    json_corpus.read('jsonl', tmp_path, on_error='skip')


def test_a_fault_ends_an_article_of_squad(tmp_path):
  path = tmp_path / 'dev.json'
  first = article('A', 'One.', 'Two.', 'Three.')
  first['paragraphs'][1] = 'a'
  path.write_bytes(squad(first, article('B', 'Four.')))
  found = json_corpus.opened('squad', path, on_error='skip')
  assert [document.text for document in found] == ['One.', 'Four.']
  assert found.skipped == {'invalid JSON': 1}


@pytest.mark.parametrize('kind', ['squad', 'jsonl'])
def test_a_damaged_list_is_skipped_like_other_bad_records(tmp_path, kind):
  data = squad(article('A', 'One.'), article('B', 'Two.'))
  if kind == 'jsonl':
    data = json.dumps([vars(document) for document in DOCUMENTS]).encode()
  (tmp_path / 'a.json').write_bytes(data[:-9])
  (tmp_path / 'b.json').write_bytes(data.replace(b'"id": "', b'"id": "b'))
  with pytest.raises(ValueError, match=r'a\.json.*corpus\.on_error=skip'):
    json_corpus.read(kind, tmp_path)
  found = json_corpus.opened(kind, tmp_path, on_error='skip')
  count = 2 if kind == 'squad' else 3
  files = [document.id[0] for document in found]
  assert files[count - 1 :] == ['b'] * count
  assert found.skipped == {'invalid JSON': 1}
