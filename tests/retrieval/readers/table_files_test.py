# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Corpora in tables and in CSV."""

import datetime
import json
import shutil

import pyarrow as pa
from pyarrow import feather
import pytest

from retrieval.text import corpus
from tests.retrieval.readers import tables
from tests.retrieval.text import json_corpus

ROWS = [vars(x) for x in json_corpus.DOCUMENTS]
ROWS = [{k: x[k] for k in ('id', 'title', 'text')} for x in ROWS]


@pytest.mark.parametrize('kind', ['parquet', 'arrow'])
def test_tables_keep_every_character(tmp_path, kind):
  path = tables.write(tmp_path / f'a.{kind}', ROWS)
  assert json_corpus.read('auto', path) == list(json_corpus.DOCUMENTS)
  assert json_corpus.read(kind, tmp_path) == list(json_corpus.DOCUMENTS)


def test_feather(tmp_path):
  path = tmp_path / 'a.arrow'
  feather.write_feather(pa.Table.from_pylist(ROWS), str(path))
  assert json_corpus.read('arrow', path) == list(json_corpus.DOCUMENTS)


@pytest.mark.parametrize('kind', ['parquet', 'arrow'])
def test_faults_of_tables_name_file_row_and_column(tmp_path, kind):
  path = tables.write(tmp_path / f'a.{kind}', [{'id': 1, 'body': 'x'}])
  with pytest.raises(ValueError, match=f"a.{kind}, record 1: .*'text'.*'body'"):
    json_corpus.read(kind, path)
  tables.write(path, [{'text': 'x', 'id': 'a'}, {'text': 'y', 'id': None}])
  with pytest.raises(ValueError, match=f"a.{kind}, record 2: .*'id'"):
    json_corpus.read(kind, path)
  data = path.read_bytes()
  path.write_bytes(data[: len(data) // 2])
  with pytest.raises(ValueError, match=f'a.{kind}: cannot be read'):
    json_corpus.read(kind, path)


@pytest.mark.parametrize('kind', ['parquet', 'arrow'])
def test_dates_are_iso_texts(tmp_path, kind):
  day, clock = datetime.date(2019, 5, 4), datetime.datetime
  times = [clock(2019, 5, 4, 7), clock(2019, 5, 4, 7, tzinfo=datetime.UTC)]
  rows = [{'text': 'x', 'day': day, 'at': times[0], 'zone': times[1]}]
  path = tables.write(tmp_path / f'a.{kind}', [*rows, {**rows[0], 'day': None}])
  first, second = corpus.open_corpus(path, metadata='day,at,zone', id_field='')
  assert first.metadata == {
    'day': '2019-05-04',
    'at': '2019-05-04T07:00:00',
    'zone': '2019-05-04T07:00:00+00:00',
  }
  assert second.metadata['day'] is None


def test_rows_without_ids_are_numbered_and_keep_metadata(tmp_path):
  rows = [{'text': x, 'year': 2000 + i} for i, x in enumerate('abc')]
  path = tables.write(tmp_path / 'a.parquet', rows)
  found = list(corpus.open_corpus(path, id_field='', metadata='year'))
  assert [x.id for x in found] == [f'a.parquet:{i}' for i in (1, 2, 3)]
  assert [x.metadata['year'] for x in found] == [2000, 2001, 2002]


def test_folders_of_datasets(tmp_path):
  for split, rows in ('train', ROWS), ('test', ROWS[:1]):
    folder = tmp_path / split
    tables.write(folder / 'data-00000-of-00001.arrow', rows)
    state = {'_data_files': [{'filename': 'data-00000-of-00001.arrow'}]}
    (folder / 'state.json').write_text(json.dumps(state))
    (folder / 'dataset_info.json').write_text('{}')
  splits = {'splits': ['train', 'test']}
  (tmp_path / 'dataset_dict.json').write_text(json.dumps(splits))
  documents = list(json_corpus.DOCUMENTS)
  assert list(corpus.open_corpus(tmp_path)) == documents
  assert list(corpus.open_corpus(tmp_path / 'train')) == documents
  assert list(corpus.open_corpus(tmp_path, split='test')) == documents[:1]
  with pytest.raises(ValueError, match="split 'dev'"):
    corpus.open_corpus(tmp_path, split='dev')
  shutil.rmtree(tmp_path / 'test')
  with pytest.raises(ValueError, match='test: '):
    corpus.open_corpus(tmp_path, split='test')
  (tmp_path / 'dataset_dict.json').write_text('{"splits": []}')
  with pytest.raises(ValueError, match="split 'train'; it has no splits"):
    corpus.open_corpus(tmp_path)


def test_csv(tmp_path):
  path = tmp_path / 'a.csv'
  path.write_text('text,id,year\n"a, ""b""\nc",1,2001\nd,2,\n')
  found = list(corpus.open_corpus(path, metadata='year'))
  assert [(x.id, x.text) for x in found] == [('1', 'a, "b"\nc'), ('2', 'd')]
  assert found[0].metadata['year'] == '2001'
  path.write_text('\nid,text\n\n1,x\n')
  assert [x.text for x in json_corpus.read('csv', path)] == ['x']
  path.write_text('id;text\n1;x, y\n')
  with pytest.raises(ValueError, match="a.csv:1: .*separator .*';'"):
    json_corpus.read('csv', path)
  path.write_text('id,text\n2,y,z\n')
  with pytest.raises(ValueError, match='a.csv:2: 3 fields'):
    json_corpus.read('csv', path)
  path.write_text('id,text\n2,"y\n')
  with pytest.raises(ValueError, match='a.csv:2: no row of a CSV'):
    json_corpus.read('csv', path)


@pytest.mark.parametrize(('kind', 'comma'), [('csv', ','), ('tsv', '\t')])
def test_numbered_columns(tmp_path, kind, comma):
  path = tmp_path / f'a.{kind}'
  path.write_text(comma.join(('u', 'first', '7')) + '\n')
  found = list(
    corpus.open_corpus(path, id_field='2', text_field='1', title_field='')
  )
  assert [(x.id, x.text) for x in found] == [('7', 'first')]
  path.write_text('0\n')  # the number of its column, and no heading
  with pytest.raises(ValueError, match="1: no field '1'"):
    json_corpus.read(kind, path, id_field='0', text_field='1')


@pytest.mark.parametrize(('kind', 'comma'), [('csv', ','), ('tsv', '\t')])
@pytest.mark.parametrize(
  'heading',
  [('id', 'title', 'body'), ('ID', 'Title', 'Text'), ('col1', 'col2')],
)
def test_a_heading_without_the_text_is_named(tmp_path, kind, comma, heading):
  path = tmp_path / f'a.{kind}'
  rows = heading, ('1', 'Cats purr.', 'Dogs bark.')[: len(heading)]
  path.write_text(''.join(comma.join(row) + '\n' for row in rows))
  with pytest.raises(ValueError, match=f'a.{kind}:2: no field .*{heading[-1]}'):
    json_corpus.read(kind, path)


def test_a_number_begins_a_file_without_a_heading(tmp_path):
  for first in ('7\tCats', 'D12\tCats purr.', '0\tCats purr.\tPets'):
    (tmp_path / 'a.tsv').write_text(f'{first}\n')
    [document] = json_corpus.read('tsv', tmp_path / 'a.tsv')
    assert [document.id, document.text] == first.split('\t')[:2]
  path = tmp_path / 'b.tsv'
  path.write_text('1\tCats\n2\tDogs\n')  # the number is no name of a column
  documents = json_corpus.read('tsv', path, id_field='0', text_field='1')
  assert [x.text for x in documents] == ['Cats', 'Dogs']
  path.write_text('0\t1\n1\tCats\n')  # a heading of numbers
  documents = json_corpus.read('tsv', path, id_field='0', text_field='1')
  assert [x.text for x in documents] == ['Cats']


def test_the_packaged_articles_are_the_kind_without_a_path():
  assert corpus.CorpusConfig().resolved().kind == 'vital'
  with pytest.raises(FileNotFoundError, match='absent'):
    corpus.CorpusConfig(path='absent').resolved()
