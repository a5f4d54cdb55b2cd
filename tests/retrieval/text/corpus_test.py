# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Every source gives the same documents; corpora are told apart."""

import bz2
import gzip
import html
import json
import lzma
import os
import tracemalloc

import pytest

from retrieval.text import corpus
from tests.retrieval.store import tiny_stores
from tests.retrieval.text import json_corpus

Document = corpus.Document

JSONL, DOCUMENTS = json_corpus.JSONL, json_corpus.DOCUMENTS


@pytest.mark.parametrize('pack', [bytes, gzip.compress, lzma.compress])
def test_json_lines_keep_every_character(tmp_path, pack):
  path = tmp_path / 'a.jsonl'
  path.write_bytes(pack(JSONL))
  assert json_corpus.read('jsonl', path) == list(DOCUMENTS)
  lines = [json.dumps(vars(d), ensure_ascii=False) for d in DOCUMENTS]
  path.write_bytes(pack(b'\xef\xbb\xbf' + '\r\n\n'.join(lines).encode()))
  assert json_corpus.read('jsonl', path) == list(DOCUMENTS)


def test_folder_and_glob_read_sorted_files(tmp_path):
  (tmp_path / 'deep').mkdir()
  for name, document in zip(
    ('b.jsonl', 'c.json', 'deep/a.jsonl'), DOCUMENTS, strict=True
  ):
    (tmp_path / name).write_bytes(json_corpus.line(document))
  (tmp_path / 'LICENSE').write_text('no json')
  (tmp_path / '.b.jsonl').write_text('no json')
  assert json_corpus.read('jsonl', tmp_path) == list(DOCUMENTS)
  assert json_corpus.read('jsonl', tmp_path / '*.json*') == list(DOCUMENTS[:2])
  for pattern in ('**/*.jsonl', '**/**/*.jsonl'):
    found = json_corpus.read('jsonl', tmp_path / pattern)
    assert found == [DOCUMENTS[0], DOCUMENTS[2]]


def test_field_names_number_ids_and_no_id(tmp_path):
  path = tmp_path / 'a.jsonl'
  path.write_text('{"key": 7, "body": "x"}\n\n{"key": 8, "body": "y"}\n')
  names = {'title_field': '', 'text_field': 'body'}
  assert json_corpus.read('jsonl', path, id_field='key', **names) == [
    Document('7', '', 'x'),
    Document('8', '', 'y'),
  ]
  by_place = json_corpus.read('jsonl', path, id_field='', **names)
  assert [d.id for d in by_place] == ['a.jsonl:1', 'a.jsonl:3']
  assert json_corpus.read('jsonl', tmp_path, id_field='', **names) == by_place


def test_a_title_may_lack_and_an_empty_text_is_skipped(tmp_path):
  path = tmp_path / 'corpus.jsonl'  # as BEIR's FiQA has them
  path.write_text(
    '{"_id": "1", "title": null, "text": "x"}\n{"_id": "2", "text": "y"}\n'
    '{"_id": "3", "title": "t", "text": " \\n"}\n'
    '{"_id": "4", "title": "t", "text": null}\n'
    '{"_id": "5", "title": 1984, "text": ["One.\\n", "Two."]}'
  )
  found = json_corpus.opened('jsonl', path)
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
  (tmp_path / 'B.Jsonl.GZ').write_bytes(
    gzip.compress(json_corpus.line(DOCUMENTS[2]))
  )
  assert {*json_corpus.read('jsonl', tmp_path)} == {*DOCUMENTS}
  assert corpus.open_corpus(tmp_path).config.kind == 'jsonl'
  bad = tmp_path / 'a.JSON'
  for value, kind in ('5', 'int'), ('null', 'NoneType'), ('"{}"', 'str'):
    bad.write_text(f'[{{"id": "x", "text": "t"}}, {value}]')
    assert len(json_corpus.read('jsonl', bad, on_error='skip')) == 1
    with pytest.raises(ValueError, match=f'a.JSON, record 2: .*{kind}'):
      json_corpus.read('jsonl', bad)


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
    json_corpus.read('text', path)
  path.write_text(data + '3\n')
  with pytest.raises(ValueError, match='a.tsv:[34]: 1 fields'):
    json_corpus.read('tsv', path)


def test_folders_with_odd_entries(tmp_path):
  root = tmp_path / 'x.jsonl'
  (root / 'y.jsonl').mkdir(parents=True)
  (root / 'y.jsonl' / 'a.jsonl').write_bytes(json_corpus.line(DOCUMENTS[0]))
  (root / 'loop').symlink_to(root)
  (root / 'self.jsonl').symlink_to(root / 'self.jsonl')
  (tmp_path / 'other').mkdir()
  (tmp_path / 'other/b.jsonl').write_bytes(json_corpus.line(DOCUMENTS[1]))
  (root / 'linked').symlink_to(tmp_path / 'other')
  assert {*json_corpus.read('jsonl', root)} == {*DOCUMENTS[:2]}
  (root / os.fsdecode(b'\xff.jsonl')).write_bytes(
    json_corpus.line(DOCUMENTS[2])
  )
  with pytest.raises(ValueError, match='corpus.path'):
    json_corpus.opened('jsonl', root)


def test_max_documents(tmp_path):
  (tmp_path / 'a.jsonl').write_bytes(JSONL + b'never read')
  path = tmp_path / 'a.jsonl'
  assert json_corpus.read('jsonl', path, max_documents=3) == list(DOCUMENTS)


def test_text_files(tmp_path):
  (tmp_path / 'b').mkdir()
  (tmp_path / 'b/x.TXT.gz').write_bytes(gzip.compress(b'one\r\n'))
  (tmp_path / 'a.txt').write_bytes('\ufefftwo'.encode())
  (tmp_path / 'blank.txt').write_bytes(b'\xef\xbb\xbf \r\n')
  (tmp_path / 'a.md').write_bytes(b'not read')
  assert json_corpus.read('text', tmp_path) == [
    Document('a.txt', 'a', 'two'),
    Document('b/x.TXT.gz', 'x', 'one\n'),
  ]
  assert json_corpus.read('text', tmp_path / 'a.txt')[0].id == 'a.txt'
  (tmp_path / '\u0130zmir.txt').write_bytes(b'BZh is how a text may begin.')
  [document] = json_corpus.read('text', tmp_path / '\u0130zmir.txt')
  assert document.title == '\u0130zmir' and document.text.startswith('BZh')
  (tmp_path / '\u0130zmir.txt').unlink()
  assert json_corpus.read('text', tmp_path / '*/*.gz')[0].id == 'b/x.TXT.gz'
  (tmp_path / 'c.txt').write_bytes(b'ab\xff')
  with pytest.raises(ValueError, match=r'c.txt:1: byte \(0xff\)'):
    json_corpus.read('text', tmp_path)
  assert len(json_corpus.read('text', tmp_path, on_error='skip')) == 2


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
  assert json_corpus.read('wikiextractor', tmp_path) == expected
  escaped = json_corpus.read('wikiextractor', tmp_path, unescape=False)
  assert escaped[0].text.startswith('First.\n\nSecond &lt;b&gt; &amp;lt;\n')


def test_wikiextractor_older_header_and_bare_frame(tmp_path):
  (tmp_path / 'wiki_00').write_text(
    '<doc id="1" revid="5" url="u" title="A">\nA\n\nx\n</doc>\n\n'
    '<doc id="2" url="u">\nno title\n</doc>\n'
    '<doc id="3" url="u" title="A redirect">\nA redirect\n\n\n\n</doc>\n'
  )
  found = json_corpus.opened('wikiextractor', tmp_path)
  assert [*found] == [Document('1', 'A', 'x'), Document('2', '', 'no title')]
  assert found.skipped == {'empty text': 1}


def test_fingerprint_is_of_content_not_of_place(tmp_path):
  for folder in ('a', 'b'):
    (tmp_path / folder).mkdir()
    (tmp_path / folder / 'x.jsonl').write_bytes(JSONL)
  first = json_corpus.opened('jsonl', tmp_path / 'a').fingerprint()
  assert json_corpus.opened('jsonl', tmp_path / 'b').fingerprint() == first
  relevant = {'on_error': 'skip', 'max_documents': 1, 'text_field': 'title'}
  relevant['max_record_bytes'] = 99
  for name, value in relevant.items():
    changed = json_corpus.opened('jsonl', tmp_path / 'a', **{name: value})
    assert changed.fingerprint() != first, name
  unused = json_corpus.opened(
    'jsonl', tmp_path / 'a', split='test', data_dir='d'
  )
  assert unused.fingerprint() == first
  (tmp_path / 'b/x.jsonl').rename(tmp_path / 'b/y.jsonl')
  assert json_corpus.opened('jsonl', tmp_path / 'b').fingerprint() != first
  tiny_stores.flip(tmp_path / 'a/x.jsonl', len(JSONL) // 2)
  assert json_corpus.opened('jsonl', tmp_path / 'a').fingerprint() != first


def test_memory_does_not_grow_with_the_corpus(tmp_path):
  path = tmp_path / 'a.jsonl'

  def peak(count):
    with open(path, 'w') as f:
      for i in range(count):
        f.write(f'{{"id": "{i}", "title": "", "text": "{"x" * 500}"}}\n')
    tracemalloc.start()
    assert sum(1 for _ in json_corpus.opened('jsonl', path)) == count
    _, high = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return high

  peak(10)
  most = peak(500) + 100_000
  # What threads of earlier tests take counts, too.
  assert any(peak(2_000) < most for _ in range(3))


@pytest.mark.parametrize(
  ('name', 'data', 'kind'),
  [
    ('a.jsonl.gz', gzip.compress(JSONL, mtime=0), 'jsonl'),
    ('a.ndjson', JSONL, 'jsonl'),
    ('wiki_a.jsonl', JSONL, 'jsonl'),
    ('a.txt', b'Ants.', 'text'),
    ('AA/wiki_00', JSONL, 'wikiextractor'),
    ('a.json', json_corpus.squad(json_corpus.article('A', 'x')), 'squad'),
    ('a.json', b'[{"id": "1", "text": "x"}]', 'jsonl'),
    ('a.tsv', b'1\tx\n', 'tsv'),
  ],
)
def test_open_corpus_tells_the_kind_by_name(tmp_path, name, data, kind):
  path = tmp_path / name
  path.parent.mkdir(exist_ok=True)
  path.write_bytes(data)
  expected = json_corpus.read(kind, path)
  for where in (path, str(path), tmp_path, tmp_path / name.replace('a.', '*.')):
    found = corpus.open_corpus(where)
    assert found.config.kind == kind
    assert found.config.of_wikipedia == (kind in ('squad', 'wikiextractor'))
    assert [d.text for d in found] == [d.text for d in expected]


def test_squad_paragraphs_are_documents(tmp_path):
  path = tmp_path / 'dev.json.xz'
  first = json_corpus.article('Super_Bowl_50', ' One.', 'Two.')
  data = json_corpus.squad(first, json_corpus.article('Nice', 'Three'))
  path.write_bytes(lzma.compress(data))
  assert json_corpus.read('squad', path) == [
    Document('dev.json.xz:0.0', 'Super Bowl 50', ' One.'),
    Document('dev.json.xz:0.1', 'Super Bowl 50', 'Two.'),
    Document('dev.json.xz:1.0', 'Nice', 'Three'),
  ]
