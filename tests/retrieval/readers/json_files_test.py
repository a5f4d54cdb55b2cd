# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""JSON is read value by value from pieces of any size."""

import gzip
import json
import tracemalloc

import pytest

from retrieval.readers import json_files, text_files

RECORDS = [
  {'a': '\u00e9\U0001f41d"\\', 'b': [1.5e-3, None, True], 'c': {'d': []}},
  {},
  {'a': 'x' * 40, 'n': 1234567890},
]


def _values(path, *args, **options):
  return [value for _, value in json_files.values(path, *args, **options)]


@pytest.mark.parametrize('step', [1, 2, 7, 64])
def test_lists_and_fields_in_pieces_of_any_size(tmp_path, step, monkeypatch):
  monkeypatch.setattr(text_files, '_STEP', step)
  path = tmp_path / 'a.json'
  others = {
    'tags': ['a', 1],
    'version': 1.25,
    'data': RECORDS,
    'more': [12, {'data': 3}],
  }
  for indent in (None, 1):
    for ascii_only in (True, False):
      write = lambda x: json.dumps(x, indent=indent, ensure_ascii=ascii_only)  # noqa: B023, E731
      path.write_text('\ufeff \n' + write(RECORDS))
      assert json_files.starts_list(path)
      assert _values(path) == RECORDS
      path.write_text(write(others))
      assert _values(path, 'data') == RECORDS
  path.write_text('[ ]')
  assert _values(path) == []


def test_a_list_or_lines(tmp_path):
  path = tmp_path / 'a.json'
  for text in (json.dumps(RECORDS), '\n\n'.join(map(json.dumps, RECORDS))):
    path.write_text(text)
    assert [x for _, x in json_files.read(path)] == RECORDS


@pytest.mark.parametrize(
  ('text', 'key', 'message'),
  [
    ('[{}, {}', '', 'record 3: not JSON'),
    ('[{}, {"a": "b', '', 'record 2: not JSON'),
    ('[{}] {}', '', 'record 2: not JSON'),
    ('[{},]', '', 'record 2: not JSON'),
    ('[{}{}]', '', 'record 2: not JSON'),
    ('[{"a": tru]', '', 'record 1: not JSON'),
    ('[' * 100_000, '', 'record 1: not JSON'),
    (f'[{"7" * 5000}]', '', 'record 1: not JSON'),
    ('{"data": [{}]', 'data', 'not JSON'),
    ('{"data": {}}', 'data', "'data'"),
    ('{"version": 1}', 'data', "'data'"),
    ('[]', 'data', "'data'"),
    ('{}', '', 'list'),
    (f'[{{}}, "{"x" * 200}"]', '', 'record 2: .* 100 bytes'),
  ],
)
def test_errors_name_the_record(tmp_path, text, key, message, monkeypatch):
  path = tmp_path / 'a.json'
  path.write_text(text)
  for step in (1, 1 << 20):
    monkeypatch.setattr(text_files, '_STEP', step)
    with pytest.raises(ValueError, match=message) as error:
      _values(path, key, limit=100 if 'bytes' in message else 1 << 20)
    assert str(path) in str(error.value) and '\n' not in str(error.value)


def test_memory_holds_a_record_whatever_the_file_unpacks_to(
  tmp_path, monkeypatch
):
  monkeypatch.setattr(text_files, '_STEP', 1 << 16)
  path = tmp_path / 'a.json.gz'
  blanks, record = ' ' * (1 << 25), json.dumps('x' * 50_000)
  many = f'[{record}{f",{record}" * 500}]'
  for text, count in (
    (many, 501),
    (f'["{blanks}', 0),
    (f'{many[:-1]},{blanks}', 0),
  ):
    path.write_bytes(gzip.compress(text.encode(), 1))
    tracemalloc.start()
    values = json_files.values(path, limit=1 << 20)
    if count:
      assert sum(1 for _ in values) == count
    else:
      with pytest.raises(ValueError, match='bytes'):
        sum(1 for _ in values)
    _, high = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert high < 1 << 24
