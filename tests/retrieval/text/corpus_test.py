# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Every source gives the same documents; what is wrong is said or counted."""

import bz2
import gzip
import html
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


@pytest.mark.parametrize('pack', [bytes, gzip.compress, lzma.compress])
def test_json_lines_keep_every_character(tmp_path, pack):
  path = tmp_path / 'a.jsonl'
  path.write_bytes(pack(JSONL))
  assert _read('jsonl', path) == list(DOCUMENTS)
  lines = [json.dumps(vars(d), ensure_ascii=False) for d in DOCUMENTS]
  path.write_bytes(pack(b'\xef\xbb\xbf' + '\r\n\n'.join(lines).encode()))
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
  assert _read('jsonl', tmp_path / '**/**/*.jsonl') == [
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


def test_a_title_may_lack_and_an_empty_text_is_skipped(tmp_path):
  path = tmp_path / 'corpus.jsonl'  # as BEIR's FiQA has them
  path.write_text(
    '{"_id": "1", "title": null, "text": "x"}\n{"_id": "2", "text": "y"}\n'
    '{"_id": "3", "title": "t", "text": " \\n"}\n'
    '{"_id": "4", "title": "t", "text": null}\n'
    '{"_id": "5", "title": 1984, "text": ["One.\\n", "Two."]}'
  )
  found = _corpus('jsonl', path)
  assert [*found] == [
    Document('1', '', 'x'),
    Document('2', '', 'y'),
    Document('5', '1984', 'One.\nTwo.'),
  ]
  assert found.skipped == {'empty text': 2}
  (tmp_path / 'qrels').mkdir()
  (tmp_path / 'qrels' / 'test.tsv').write_text('query-id\tcorpus-id\tscore\n')
  (tmp_path / 'queries.jsonl').write_text('{"_id": "q", "text": "z"}\n')
  assert [*corpus.open_corpus(tmp_path)] == [*found]


def test_a_json_list_and_names_in_capitals(tmp_path):
  (tmp_path / 'a.JSON').write_text(json.dumps([*map(vars, DOCUMENTS[:2])]))
  (tmp_path / 'B.Jsonl.GZ').write_bytes(gzip.compress(_line(DOCUMENTS[2])))
  assert {*_read('jsonl', tmp_path)} == {*DOCUMENTS}
  assert corpus.open_corpus(tmp_path).config.kind == 'jsonl'
  bad = tmp_path / 'a.JSON'
  bad.write_text('[{"id": "x", "text": "t"}, 5]')
  assert len(_read('jsonl', bad, on_error='skip')) == 1
  with pytest.raises(ValueError, match='a.JSON, record 2: .*int'):
    _read('jsonl', bad)


TABLES = (
  ('id\ttext\ttitle\n1\t"A ""b"" c"\tT\n2\td\t"U\tV"\n', '1', 'A "b" c', 'T'),
  ('1\t"A" b\n2\tc\n', '1', '"A" b', ''),  # no heading, no quotes
  ('1\tA\tT\n2\tb\tU\n', '1', 'A', 'T'),
  ('"id"\t"text"\t"title"\n"1"\t"A"\t"T"\n2\td\tU\n', '1', 'A', 'T'),
  ('title\ttext\tid\nT\t"A" b"\t1\n"\tc""\t2\n', '1', '"A" b"', 'T'),
)


@pytest.mark.parametrize('table', TABLES)
def test_tables(tmp_path, table):
  data, *expected = table
  path = tmp_path / 'a.tsv'
  path.write_text(data)
  first, second = corpus.open_corpus(path)
  assert [first.id, first.text, first.title] == expected
  assert second.id == '2'
  with pytest.raises(ValueError, match="a.tsv: .*'tsv'"):
    _read('text', path)
  path.write_text(data + '3\n')
  with pytest.raises(ValueError, match='a.tsv:[34]: 1 fields'):
    _read('tsv', path)


def test_folders_with_odd_entries(tmp_path):
  root = tmp_path / 'x.jsonl'
  (root / 'y.jsonl').mkdir(parents=True)
  (root / 'y.jsonl' / 'a.jsonl').write_bytes(_line(DOCUMENTS[0]))
  (root / 'loop').symlink_to(root)
  (root / 'self.jsonl').symlink_to(root / 'self.jsonl')
  (tmp_path / 'other').mkdir()
  (tmp_path / 'other/b.jsonl').write_bytes(_line(DOCUMENTS[1]))
  (root / 'linked').symlink_to(tmp_path / 'other')
  assert {*_read('jsonl', root)} == {*DOCUMENTS[:2]}
  (root / os.fsdecode(b'\xff.jsonl')).write_bytes(_line(DOCUMENTS[2]))
  with pytest.raises(ValueError, match='corpus.path'):
    _corpus('jsonl', root)


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
  'too long': (b'x' * 500, 'corpus.max_record_bytes'),
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
  limit = 400_000 if '(deep)' in case else 400
  with pytest.raises(ValueError) as error:
    _read('jsonl', path, max_record_bytes=limit)
  assert str(error.value).startswith(f'{path}:4: ')
  assert message in str(error.value)
  assert 'corpus.on_error=skip' in str(error.value)
  if case == 'duplicate id':
    assert f'used at {path}:1.' in str(error.value)
  skipping = _corpus('jsonl', path, on_error='skip', max_record_bytes=limit)
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


def test_no_document_left(tmp_path):
  (tmp_path / 'a.jsonl').write_text('\n')
  with pytest.raises(ValueError, match='No document in'):
    _read('jsonl', tmp_path)
  (tmp_path / 'a.jsonl').write_text('{}\n')
  with pytest.raises(ValueError, match=r"skipped: {'missing field id': 1}"):
    _read('jsonl', tmp_path, on_error='skip')


def test_text_files(tmp_path):
  (tmp_path / 'b').mkdir()
  (tmp_path / 'b/x.TXT.gz').write_bytes(gzip.compress(b'one\r\n'))
  (tmp_path / 'a.txt').write_bytes('\ufefftwo'.encode())
  (tmp_path / 'blank.txt').write_bytes(b'\xef\xbb\xbf \r\n')
  (tmp_path / 'a.md').write_bytes(b'not read')
  assert _read('text', tmp_path) == [
    Document('a.txt', 'a', 'two'),
    Document('b/x.TXT.gz', 'x', 'one\n'),
  ]
  assert _read('text', tmp_path / 'a.txt')[0].id == 'a.txt'
  (tmp_path / '\u0130zmir.txt').write_bytes(b'BZh is how a text may begin.')
  [document] = _read('text', tmp_path / '\u0130zmir.txt')
  assert document.title == '\u0130zmir' and document.text.startswith('BZh')
  (tmp_path / '\u0130zmir.txt').unlink()
  assert _read('text', tmp_path / '*/*.gz')[0].id == 'b/x.TXT.gz'
  (tmp_path / 'c.txt').write_bytes(b'ab\xff')
  with pytest.raises(ValueError, match=r'c.txt:1: byte \(0xff\)'):
    _read('text', tmp_path)
  assert len(_read('text', tmp_path, on_error='skip')) == 2


WIKI = (
  ('12', 'Ants "red" & > 3', 'First.\n\nSecond <b> &lt;\n</doc'),
  ('7', 'Bees', ' Bees.  \u2028x'),
)


def _elements(pages):
  # As WikiExtractor writes them: heading, blank line, text, blank line.
  return (
    '\ufeff'.encode()
    + ''.join(
      f'<doc id="{i}" url="https://x.org/wiki?curid={i}" title="{title}">\r\n'
      f'{title}\r\n\r\n{_escape(text)}\r\n\r\n</doc>\r\n'
      for i, title, text in pages
    ).encode()
  )


def _escape(text):
  return html.escape(text, quote=False).replace('\n', '\r\n')


def _objects(pages):
  return ''.join(
    json.dumps({'id': i, 'title': t, 'text': html.escape(x, quote=False)})
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
  escaped = _read('wikiextractor', tmp_path, unescape=False)
  assert escaped[0].text.startswith('First.\n\nSecond &lt;b&gt; &amp;lt;\n')


def test_wikiextractor_older_header_and_bare_frame(tmp_path):
  (tmp_path / 'wiki_00').write_text(
    '<doc id="1" revid="5" url="u" title="A">\nA\n\nx\n</doc>\n\n'
    '<doc id="2" url="u">\nno title\n</doc>\n'
    '<doc id="3" url="u" title="A redirect">\nA redirect\n\n\n\n</doc>\n'
  )
  found = _corpus('wikiextractor', tmp_path)
  assert [*found] == [Document('1', 'A', 'x'), Document('2', '', 'no title')]
  assert found.skipped == {'empty text': 1}


def test_fingerprint_is_of_content_not_of_place(tmp_path):
  for folder in ('a', 'b'):
    (tmp_path / folder).mkdir()
    (tmp_path / folder / 'x.jsonl').write_bytes(JSONL)
  first = _corpus('jsonl', tmp_path / 'a').fingerprint()
  assert _corpus('jsonl', tmp_path / 'b').fingerprint() == first
  relevant = {'on_error': 'skip', 'max_documents': 1, 'text_field': 'title'}
  relevant['max_record_bytes'] = 99
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
    ('wiki_a.jsonl', JSONL, 'jsonl'),
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


@pytest.mark.parametrize('kind', ['squad', 'jsonl'])
def test_a_damaged_list_is_skipped_like_other_bad_records(tmp_path, kind):
  data = _squad(_article('A', 'One.'), _article('B', 'Two.'))
  if kind == 'jsonl':
    data = json.dumps([vars(document) for document in DOCUMENTS]).encode()
  (tmp_path / 'a.json').write_bytes(data[:-9])
  (tmp_path / 'b.json').write_bytes(data.replace(b'"id": "', b'"id": "b'))
  with pytest.raises(ValueError, match=r'a\.json.*corpus\.on_error=skip'):
    _read(kind, tmp_path)
  found = _corpus(kind, tmp_path, on_error='skip')
  count = 2 if kind == 'squad' else 3
  files = [document.id[0] for document in found]
  assert files[count - 1 :] == ['b'] * count
  assert found.skipped == {'invalid JSON': 1}


def test_open_corpus_names_a_path_that_is_not_there(tmp_path):
  for name in ('folder', 'a.jsonl', 'a.md'):
    with pytest.raises(FileNotFoundError, match=name):
      corpus.open_corpus(tmp_path / name)
  with pytest.raises(FileNotFoundError, match='no such file'):
    _corpus('jsonl', tmp_path / 'folder')
