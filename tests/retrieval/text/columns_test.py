# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Metadata go from records to columns and come back as they were."""

import dataclasses
import pickle

import numpy as np
import pytest

from retrieval.text import corpus as corpus_lib, tokens as tokens_lib
from tests.retrieval.store import tiny_stores
from tests.retrieval.text import json_corpus, tiny_blocks

VALUES = ({'n': 1, 'x': 'é'}, {'n': True}, {'n': 1.5}, {'n': 2**60}, {})
ROWS = [
  {'id': f'd{i}', 'text': 'river mill', 'tags': ['a'], **row}
  for i, row in enumerate(VALUES)
]
ROWS[-1]['metadata'] = {'x': 'inner', 'n': None}  # as BEIR has it


def _tokens(root, name, corpus):
  path = tiny_blocks.write_vocabulary(root / 'tokenizer')
  return tokens_lib.build_token_store(
    root / name, corpus, path, documents_per_shard=2
  )


def test_values_come_back_and_others_are_left_out(tmp_path):
  path = json_corpus.write(tmp_path, ROWS).config.path
  corpus = json_corpus.opened('jsonl', path, metadata='n, x')
  assert [*corpus][0].metadata == {'n': 1, 'x': 'é'}
  tokens = _tokens(tmp_path, 'with', corpus)
  wanted = [{'n': None, 'x': None} | row for row in VALUES[:-1]]
  wanted.append({'n': None, 'x': 'inner'})
  rows = tokens.metadata.rows(np.arange(len(ROWS)))
  assert rows == wanted
  assert [type(x['n']) for x in rows[:3]] == [int, bool, float]
  sent = pickle.loads(pickle.dumps(tokens))  # to a worker that cuts blocks
  assert sent.metadata.rows([0]) == wanted[:1]


def test_a_store_without_metadata_is_the_same_store(tmp_path):
  plain = json_corpus.write(tmp_path, ROWS)
  found = _tokens(tmp_path, 'plain', plain)
  assert not found.metadata.names and 'metadata' not in found.store.fields
  names = {file.name for file in found.path.iterdir()}
  assert not [name for name in names if name.startswith('metadata')]
  fields = dataclasses.asdict(corpus_lib.CorpusConfig('jsonl'))
  assert fields['metadata'] == ''
  rows = [{k: v for k, v in row.items() if k in ('id', 'text')} for row in ROWS]
  bare = _tokens(tmp_path / 'bare', 'plain', json_corpus.write(tmp_path, rows))
  found, bare = map(tiny_stores.file_hashes, (found.path, bare.path))
  assert found.keys() == bare.keys()
  del found['manifest.json'], bare['manifest.json']  # names the corpus's file
  assert found == bare


def test_tables_and_the_packaged_articles_have_metadata(tmp_path):
  (tmp_path / 'a.tsv').write_text('id\ttext\ttopic\n1\tx\tArts\n')
  [read] = json_corpus.read('tsv', tmp_path, metadata='topic')
  assert read.metadata == {'topic': 'Arts'}
  vital = corpus_lib.open_corpus(kind='vital', metadata='topic')
  assert next(iter(vital)).metadata == {'topic': 'Arts'}


@pytest.mark.parametrize('value', [['a'], {'b': 1}])
def test_a_field_of_several_values_is_a_bad_record(tmp_path, value):
  path = json_corpus.write(tmp_path, [{'id': 'a', 'text': 'b', 'tags': value}])
  with pytest.raises(ValueError, match='documents.jsonl.*tags'):
    json_corpus.read('jsonl', path.config.path, metadata='tags')
  with pytest.raises(ValueError, match='corpus.metadata'):
    json_corpus.opened('text', tmp_path, metadata='tags')
