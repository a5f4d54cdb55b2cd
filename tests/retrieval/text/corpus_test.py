# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Every source gives the same documents; what is wrong is said or counted."""

import bz2
import gzip
import json
import lzma
import os
import tempfile
import tracemalloc

import pytest

from retrieval.text import corpus

Document = corpus.Document

# Text is passed on to the byte: no end of it is trimmed, no newline changed.
DOCUMENTS = (
  Document('1', 'Ants', ' Ants are small.\r\n\r\nThey work.\n'),
  Document('2', 'Bees \u2581', '\tBees fly\u2028far \x00 e\u0301 \U0001f41d  '),
  Document('3', '', '\ufeff{"not": "json"}'),
)


def _line(document):
  return json.dumps(vars(document)).encode() + b'\n'


JSONL = b''.join(_line(d) for d in DOCUMENTS)


def _read(kind, path, **fields):
  return list(_corpus(kind, path, **fields))


def _corpus(kind, path, **fields):
  return corpus.Corpus(corpus.CorpusConfig(kind=kind, path=str(path), **fields))


@pytest.mark.parametrize(
  ('name', 'pack'),
  [
    ('a.jsonl', bytes),
    ('a.jsonl.gz', gzip.compress),
    ('a.jsonl.bz2', bz2.compress),
    ('a.jsonl.xz', lzma.compress),
  ],
)
def test_json_lines_plain_and_packed(tmp_path, name, pack):
  (tmp_path / name).write_bytes(pack(JSONL))
  assert _read('jsonl', tmp_path / name) == list(DOCUMENTS)


def test_json_lines_in_utf8_with_blank_lines_and_byte_order_mark(tmp_path):
  lines = [json.dumps(vars(d), ensure_ascii=False) for d in DOCUMENTS]
  path = tmp_path / 'a.jsonl'
  path.write_bytes(b'\xef\xbb\xbf' + '\r\n\n'.join(lines).encode())
  assert _read('jsonl', path) == list(DOCUMENTS)


def test_folder_and_glob_read_sorted_files(tmp_path):
  (tmp_path / 'deep').mkdir()
  for name, document in zip(
    ('b.jsonl', 'c.json', 'deep/a.jsonl'), DOCUMENTS, strict=True
  ):
    (tmp_path / name).write_bytes(_line(document))
  (tmp_path / 'LICENSE').write_text('no json')
  (tmp_path / '.b.jsonl').write_text('no json')
  assert _read('jsonl', tmp_path) == list(DOCUMENTS)
  assert _read('jsonl', tmp_path / '*.json*') == list(DOCUMENTS[:2])
  assert _read('jsonl', tmp_path / '**/*.jsonl') == [
    DOCUMENTS[0],
    DOCUMENTS[2],
  ]


def test_ids_are_in_a_file_that_no_kill_leaves(tmp_path, monkeypatch):
  monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))
  path = tmp_path / 'a.jsonl'
  path.write_bytes(JSONL)
  read = iter(_corpus('jsonl', path))
  next(read)
  assert os.listdir(tmp_path) == ['a.jsonl']
  assert len([*read]) == len(DOCUMENTS) - 1


def test_field_names_number_ids_and_no_id(tmp_path):
  path = tmp_path / 'a.jsonl'
  path.write_text('{"key": 7, "body": "x"}\n\n{"key": 8, "body": "y"}\n')
  names = {'title_field': '', 'text_field': 'body'}
  assert _read('jsonl', path, id_field='key', **names) == [
    Document('7', '', 'x'),
    Document('8', '', 'y'),
  ]
  by_place = _read('jsonl', path, id_field='', **names)
  assert [d.id for d in by_place] == ['a.jsonl:1', 'a.jsonl:3']
  assert _read('jsonl', tmp_path, id_field='', **names) == by_place


def test_max_documents(tmp_path):
  (tmp_path / 'a.jsonl').write_bytes(JSONL + b'never read')
  path = tmp_path / 'a.jsonl'
  assert _read('jsonl', path, max_documents=3) == list(DOCUMENTS)


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
  'empty text': (
    b'{"id": "x", "title": "t", "text": " \\n"}',
    'text is empty',
  ),
  'invalid UTF-8': (b'{"id": "\xff"}', 'byte 8 (0xff) is not UTF-8'),
  'invalid UTF-8 (half)': (
    b'{"id": "x", "title": "t", "text": "\\ud83d"}',
    "field 'text' holds half a character",
  ),
  'duplicate id': (_line(DOCUMENTS[0])[:-1], "id '1' is already used at "),
}


@pytest.mark.parametrize('case', BAD)
def test_a_bad_line_is_named_or_counted(tmp_path, case):
  line, message = BAD[case]
  path = tmp_path / 'a.jsonl'
  path.write_bytes(b'\n'.join([JSONL[:-1], line, line]) + b'\n')
  with pytest.raises(ValueError) as error:
    _read('jsonl', path)
  assert str(error.value).startswith(f'{path}:4: ')
  assert message in str(error.value)
  if case == 'duplicate id':
    assert f'used at {path}:1.' in str(error.value)
  skipping = _corpus('jsonl', path, on_error='skip')
  for _ in range(2):  # The counts are those of one iteration.
    assert list(skipping) == list(DOCUMENTS)
    assert skipping.skipped == {case.split(' (')[0]: 2}


def test_duplicates_are_found_between_files(tmp_path):
  (tmp_path / 'a.jsonl').write_bytes(JSONL)
  (tmp_path / 'b.jsonl').write_bytes(_line(DOCUMENTS[2]))
  with pytest.raises(
    ValueError, match=r"b.jsonl:1: id '3' .*used at .*a.jsonl:3"
  ):
    _read('jsonl', tmp_path)


@pytest.mark.parametrize(
  ('name', 'pack'),
  [('gz', gzip.compress), ('bz2', bz2.compress), ('xz', lzma.compress)],
)
@pytest.mark.parametrize('damage', ['cut', 'flipped', 'start', 'other'])
def test_damaged_archive(tmp_path, name, pack, damage):
  text = b''.join(
    _line(Document(str(i), '', os.urandom(40).hex())) for i in range(500)
  )
  data = bytearray(pack(text))
  if damage == 'cut':
    del data[len(data) // 2 :]
  elif damage == 'flipped':
    data[len(data) // 2] ^= 255
  elif damage == 'start':
    data[10] = 255  # gzip: a block of no type
  else:
    data = text
  path = tmp_path / f'a.jsonl.{name}'
  path.write_bytes(data)
  with pytest.raises(ValueError, match='a.jsonl'):
    _read('jsonl', path)


def test_no_document_left(tmp_path):
  (tmp_path / 'a.jsonl').write_text('\n')
  with pytest.raises(ValueError, match='No document in'):
    _read('jsonl', tmp_path)
  (tmp_path / 'a.jsonl').write_text('{}\n')
  with pytest.raises(ValueError, match=r"skipped: {'missing field id': 1}"):
    _read('jsonl', tmp_path, on_error='skip')


def test_text_files(tmp_path):
  (tmp_path / 'b').mkdir()
  (tmp_path / 'b/x.txt').write_bytes(b'one\r\n')
  (tmp_path / 'a.txt').write_bytes('\ufefftwo'.encode())
  (tmp_path / 'a.md').write_bytes(b'not read')
  assert _read('text', tmp_path) == [
    Document('a.txt', 'a', '\ufefftwo'),
    Document('b/x.txt', 'x', 'one\r\n'),
  ]
  assert _read('text', tmp_path / 'a.txt')[0].id == 'a.txt'
  assert _read('text', tmp_path / '*/*.txt')[0].id == 'b/x.txt'
  (tmp_path / 'c.txt').write_bytes(b'ab\xff')
  with pytest.raises(ValueError, match=r'c.txt: byte 2 \(0xff\)'):
    _read('text', tmp_path)
  assert len(_read('text', tmp_path, on_error='skip')) == 2


WIKI = (
  ('12', 'Ants "red" > 3', 'First.\n\nSecond <b> &lt;\n</doc'),
  ('7', 'Bees', ' Bees.  \u2028x'),
)


def _elements(pages):
  # As WikiExtractor writes them: heading, blank line, text, blank line.
  return ''.join(
    f'<doc id="{i}" url="https://x.org/wiki?curid={i}" title="{title}">\n'
    f'{title}\n\n{text}\n\n</doc>\n'
    for i, title, text in pages
  ).encode()


def _objects(pages):
  return ''.join(
    json.dumps({'id': i, 'revid': '9', 'url': 'u', 'title': t, 'text': x})
    + '\n'
    for i, t, x in pages
  ).encode()


@pytest.mark.parametrize('write', [_elements, _objects])
@pytest.mark.parametrize('suffix', ['', '.bz2'])
def test_wikiextractor_both_forms(tmp_path, write, suffix):
  for folder, page in zip(('AA', 'AB'), WIKI, strict=True):
    (tmp_path / folder).mkdir()
    data = write([page])
    path = tmp_path / folder / f'wiki_00{suffix}'
    path.write_bytes(bz2.compress(data) if suffix else data)
  expected = [Document(*page) for page in WIKI]
  assert _read('wikiextractor', tmp_path) == expected


def test_wikiextractor_older_header_and_bare_frame(tmp_path):
  (tmp_path / 'wiki_00').write_text(
    '<doc id="1" revid="5" url="u" title="A">\nA\n\nx\n</doc>\n\n'
    '<doc id="2" url="u">\nno title\n</doc>\n'
  )
  assert _read('wikiextractor', tmp_path) == [
    Document('1', 'A', 'x'),
    Document('2', '', 'no title'),
  ]


def test_fingerprint_is_of_content_not_of_place(tmp_path):
  for folder in ('a', 'b'):
    (tmp_path / folder).mkdir()
    (tmp_path / folder / 'x.jsonl').write_bytes(JSONL)
  first = _corpus('jsonl', tmp_path / 'a').fingerprint()
  assert _corpus('jsonl', tmp_path / 'b').fingerprint() == first
  relevant = {'on_error': 'skip', 'max_documents': 1, 'text_field': 'title'}
  for name, value in relevant.items():
    changed = _corpus('jsonl', tmp_path / 'a', **{name: value})
    assert changed.fingerprint() != first, name
  unused = _corpus('jsonl', tmp_path / 'a', split='test', data_dir='d')
  assert unused.fingerprint() == first
  (tmp_path / 'b/x.jsonl').rename(tmp_path / 'b/y.jsonl')
  assert _corpus('jsonl', tmp_path / 'b').fingerprint() != first


def test_fingerprint_sees_a_byte_in_the_middle(tmp_path):
  path = tmp_path / 'a.txt'
  path.write_bytes(b'a' * (5 << 20))
  first = _corpus('text', path).fingerprint()
  with open(path, 'r+b') as f:
    f.seek(5 << 19)
    f.write(b'b')
  assert _corpus('text', path).fingerprint() != first


def test_memory_does_not_grow_with_the_corpus(tmp_path):
  path = tmp_path / 'a.jsonl'

  def peak(count):
    with open(path, 'w') as f:
      for i in range(count):
        f.write(f'{{"id": "{i}", "title": "", "text": "{"x" * 500}"}}\n')
    tracemalloc.start()
    assert sum(1 for _ in _corpus('jsonl', path)) == count
    _, high = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return high

  peak(10)
  assert peak(4_000) < peak(1_000) + 100_000


@pytest.mark.parametrize(
  ('name', 'data', 'kind'),
  [
    ('a.jsonl.gz', gzip.compress(JSONL, mtime=0), 'jsonl'),
    ('a.ndjson', JSONL, 'jsonl'),
    ('a.txt', b'Ants.', 'text'),
    ('AA/wiki_00', JSONL, 'wikiextractor'),
  ],
)
def test_open_corpus_tells_the_kind_by_name(tmp_path, name, data, kind):
  path = tmp_path / name
  path.parent.mkdir(exist_ok=True)
  path.write_bytes(data)
  expected = _read(kind, path)
  for where in (path, str(path), tmp_path, tmp_path / name.replace('a.', '*.')):
    found = corpus.open_corpus(where)
    assert found.config.kind == kind
    assert [d.text for d in found] == [d.text for d in expected]


def _squad(*articles):
  return json.dumps({'version': '1.1', 'data': articles}).encode()


def _article(title, *texts):
  paragraphs = [{'context': text, 'qas': []} for text in texts]
  return {'title': title, 'paragraphs': paragraphs}


def test_squad_paragraphs_are_documents(tmp_path):
  path = tmp_path / 'dev.json.xz'
  path.write_bytes(
    lzma.compress(
      _squad(
        _article('Super_Bowl_50', ' One.', 'Two.'), _article('Nice', 'Three')
      )
    )
  )
  assert _read('squad', path) == [
    Document('dev.json.xz:0.0', 'Super Bowl 50', ' One.'),
    Document('dev.json.xz:0.1', 'Super Bowl 50', 'Two.'),
    Document('dev.json.xz:1.0', 'Nice', 'Three'),
  ]


def test_a_fault_ends_an_article_of_squad(tmp_path):
  path = tmp_path / 'dev.json'
  article = _article('A', 'One.', 'Two.', 'Three.')
  article['paragraphs'][1] = 'a'
  path.write_bytes(_squad(article, _article('B', 'Four.')))
  found = _corpus('squad', path, on_error='skip')
  assert [document.text for document in found] == ['One.', 'Four.']
  assert found.skipped == {'invalid JSON': 1}
