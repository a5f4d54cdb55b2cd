# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Preparing REALM's data: stages, other corpora to mask, damage, records."""

import json
import shutil

import numpy as np
import pytest

from configs import realm_pretrain_small
from experiments.engine import configs
from experiments.realm import (
  config as config_lib,
  prepare as realm_prepare,
  task as realm_task,
)
from realm_jax.data import folder as realm_data
from retrieval.formats import tfrecord
from tests.retrieval.formats import examples
from tests.retrieval.store import tiny_stores
from tests.retrieval.text import tiny_blocks


def _write(folder, name, rows):
  lines = '\n'.join(json.dumps(row) for row in rows)
  (folder / name).write_text(lines)
  return str(folder / name)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """Two corpora of some years, and a vocabulary."""
  root = tmp_path_factory.mktemp('corpus')
  rng = np.random.default_rng(0)
  _write(root, 'z.jsonl', tiny_blocks.documents(20, rng))
  rows = [
    {'id': f'x{i}', 'title': f'X {i}', 'text': f'Rome was crown in {1500 + i}.'}
    for i in range(9)
  ]
  _write(root, 'x.jsonl', rows)
  tiny_blocks.write_vocabulary(root / 'tokenizer')
  return root


def _config(folder, masked=False, **fields):
  c = realm_pretrain_small.get_config('test')
  c.corpus.kind = 'jsonl'
  c.corpus.path = str(folder / 'z.jsonl')
  c.corpus.max_documents = 0
  if masked:
    other = {'masked_corpus.kind': 'jsonl'}
    fields = other | {'masked_corpus.path': str(folder / 'x.jsonl')} | fields
  c.tokenizer.path = str(folder / 'tokenizer')
  c.tokens.documents_per_shard = 7
  c.blocks.max_length = 32
  return configs.replaced(configs.build(config_lib.Config, c), **fields)


def _run(config, workdir, stages='all', **prepare):
  wanted = realm_prepare.Prepare(stages=stages, **prepare)
  realm_prepare.prepare(config, str(workdir), wanted)
  return realm_data.DataFolder.of(config, workdir)


@pytest.fixture(scope='module')
def prepared(folder, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('prepared')
  _run(_config(folder), workdir)
  return workdir


@pytest.fixture(scope='module')
def with_other_x(folder, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('masked')
  _run(_config(folder, masked=True), workdir)
  return workdir


@pytest.fixture
def copy(prepared, tmp_path):
  shutil.copytree(prepared / 'data', tmp_path / 'data')
  return tmp_path


def _files(workdir):
  """Hashes of the prepared files, and the times of their last changes."""
  files = sorted((workdir / 'data').rglob('*'))
  hashes = tiny_stores.file_hashes(workdir / 'data')
  return hashes, [file.stat().st_mtime_ns for file in files]


def test_all_stages(folder, prepared):
  data = realm_data.DataFolder(prepared / 'data')
  rows = [json.loads(x) for x in (folder / 'z.jsonl').read_text().splitlines()]
  tokens = data.blocks.tokens
  assert tokens.num_documents == len(rows) and tokens.with_text
  for i, row in enumerate(rows):
    assert tokens.text_bytes(i).decode() == row['text']
  assert data.blocks.max_length == 32 and data.blocks.num_blocks >= len(rows)
  assert data.masked_blocks is data.blocks
  spans = data.spans
  assert spans.num_spans > 10 and spans.labels == ('DATE',)
  config = _config(folder)
  source = realm_task.masked_sentences(config, data, 'train')
  assert len(source) and data.layout(config).block_length == 32


def test_again_there_is_nothing_to_do(folder, prepared, capsys):
  before = _files(prepared)
  capsys.readouterr()
  _run(_config(folder), prepared)
  assert _files(prepared) == before
  printed = capsys.readouterr().out
  data = realm_data.DataFolder(prepared / 'data')
  for what, count in (
    ('vocabulary', data.tokenizer.vocab_size),
    ('documents', 20),
    ('blocks', data.blocks.num_blocks),
    ('kept', data.spans.num_spans),
  ):
    words = (line.split() for line in printed.splitlines())
    assert any(
      [what, f'{count:,}'] == x[-3:-1] or [what, f'{count:,}'] == x[-2:]
      for x in words
    )


def test_stages_one_after_another_write_the_same(folder, prepared, tmp_path):
  _run(_config(folder), tmp_path, 'tokenizer,tokens')
  assert {x.name for x in (tmp_path / 'data').glob('[!.]*')} == {
    'tokenizer',
    'tokens',
  }
  _run(_config(folder), tmp_path, 'blocks')
  _run(_config(folder), tmp_path, 'spans')
  assert _files(tmp_path)[0] == _files(prepared)[0]


def test_another_tokenizer_than_the_one_that_stands(folder, copy, tmp_path):
  other = tmp_path / 'other'
  other.mkdir()
  pieces = (folder / 'tokenizer' / 'vocab.txt').read_text()
  (other / 'vocab.txt').write_text(pieces + 'extra\n')
  config = _config(folder, **{'tokenizer.path': str(other)})
  with pytest.raises(ValueError, match='holds tokenizer .*other') as error:
    _run(config, copy)
  assert '\n' not in str(error.value)
  # The same one from another place is fine.
  own = str(copy / 'data' / 'tokenizer')
  _run(_config(folder, **{'tokenizer.path': own}), copy)


def test_a_tokenizer_that_was_not_finished_is_taken_again(folder, tmp_path):
  (tmp_path / 'data' / 'tokenizer').mkdir(parents=True)  # as a kill leaves it
  data = _run(_config(folder), tmp_path, 'tokenizer')
  assert data.has_tokenizer and data.tokenizer.vocab_size


def test_what_is_masked_may_be_another_corpus(folder, with_other_x, prepared):
  data = realm_data.DataFolder(with_other_x / 'data')
  assert data.masked_blocks.num_blocks == 9
  texts = data.masked_blocks.texts(range(9))
  assert texts[3] == 'Rome was crown in 1503.'
  assert data.spans.num_spans == 9
  assert data.spans.store.fields['blocks'] == data.masked_blocks.fingerprint
  # Z is what it is without.
  alone = realm_data.DataFolder(prepared / 'data')
  assert data.blocks.fingerprint == alone.blocks.fingerprint
  config = _config(folder, masked=True, valid_fraction=0.0)
  assert len(realm_task.masked_sentences(config, data, 'train')) == 9


def _write_marked(path, texts, sentences, spans=()):
  """Write records with the same sentences and spans of bytes in each text."""
  marks = {}
  for name, bounds in (('sentence', sentences), ('span', spans)):
    starts, limits = np.asarray(bounds, np.int64).reshape(-1, 2).T
    marks |= {f'{name}_byte_start': starts, f'{name}_byte_limit': limits}
  records = [{'title': [b'X'], 'text': [x.encode()], **marks} for x in texts]
  tfrecord.write(path, map(examples.encode, records))


def test_sentences_come_with_the_corpus(folder, tmp_path):
  text = 'Rome. Crown in 1500.'
  _write_marked(tmp_path / 'x.tfr', [text], [[0, 10], [11, 20]])
  marked = {'corpus.kind': 'realm_pretraining'}
  marked['corpus.path'] = str(tmp_path / 'x.tfr')
  config = _config(folder, **marked)
  blocks = _run(config, tmp_path / 'run').blocks
  assert blocks.sentence_bytes[np.arange(2)].tolist() == [[0, 10], [11, 20]]
  _write_marked(tmp_path / 'y.tfr', [text], [[0, 11], [10, 20]])
  marked['corpus.path'] = str(tmp_path / 'y.tfr')
  config = _config(folder, **marked)
  with pytest.raises(ValueError, match='overlap: one ends at character 11'):
    _run(config, tmp_path / 'overlap')


def test_spans_may_come_with_the_corpus(folder, tmp_path):
  """X as published: its records mark what is salient."""
  texts = [f'Rome was crown in {1500 + i}.' for i in range(9)]
  records = str(tmp_path / 'x.tfr')
  _write_marked(records, texts, [[0, 23]], [[18, 22]])
  own = {'spans.tagger.kind': 'corpus'}
  config = _config(
    folder,
    **own,
    **{
      'corpus.kind': 'realm_pretraining',
      'corpus.path': records,
      'blocks.whole_documents': True,
    },
  )
  data = _run(config, tmp_path / 'run')
  blocks, spans = data.blocks, data.spans
  assert blocks.num_blocks == spans.num_spans == 9
  assert spans.labels == ('SPAN',)
  bounds = zip(spans.byte_start[:], spans.byte_limit[:], strict=True)
  for i, (start, limit) in enumerate(bounds):
    [text] = blocks.texts([i])
    assert text.encode()[start:limit].decode() == str(1500 + i)
  # Z may be without any, as long as X has them.
  masked = {'masked_corpus.kind': 'realm_pretraining'}
  masked['masked_corpus.path'] = records
  config = _config(folder, **own, **masked)
  assert _run(config, tmp_path / 'x').spans.num_spans == 9
  config = _config(folder, **own)
  with pytest.raises(ValueError, match="'jsonl' has no sentences and spans"):
    _run(config, tmp_path / 'none')
