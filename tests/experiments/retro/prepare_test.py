# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Preparing one folder: by several processes, again, and with damage in it."""

import dataclasses
import pathlib
import shutil

import numpy as np
import pytest

from experiments.retro import (
  prepare as retro_prepare,
  task as retro_task,
  update as retro_update,
)
from retrieval import tokenization
from retrieval.text import corpus as corpus_lib, near_duplicates
from retro_jax.data import datastore as datastore_lib, folder as retro_data
from retro_jax.trained import loading
from tests.experiments.engine import tiny_corpus
from tests.experiments.retro import tiny_config
from tests.retrieval.index import neighbors_test
from tests.retrieval.store import tiny_stores

ROOT = pathlib.Path(__file__).parents[3]
STAGES = 'tokenizer,tokens,chunks'


def _config(folder, **fields):
  fields = {
    'corpus.kind': 'jsonl',
    'corpus.path': str(folder / 'documents.jsonl'),
    'corpus.max_documents': 0,
    'tokenizer.vocab_size': 300,
    'tokens.documents_per_shard': 4,
    'valid_fraction': 0.3,
    'test_fraction': 0.01,
    'model.chunk_length': 64,
    'neighbors.stored': 10,
  } | fields
  return tiny_config.of(**fields)


def _prepare(config, workdir, stages=STAGES, **evaluation):
  evaluation = retro_prepare.Evaluation(**evaluation)
  prepare = retro_prepare.Prepare(stages=stages, evaluation=evaluation)
  retro_prepare.prepare(config, str(workdir), prepare)


@pytest.fixture(scope='module')
def corpus(tmp_path_factory):
  folder = tmp_path_factory.mktemp('corpus')
  tiny_corpus.write(folder, 80)
  return folder


@pytest.fixture(scope='module')
def prepared(corpus, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('prepared')
  _prepare(_config(corpus), workdir)
  return workdir


@pytest.fixture
def copy(prepared, tmp_path):
  shutil.copytree(prepared / 'data', tmp_path / 'data')
  return tmp_path


def test_processes_make_the_same_bytes(corpus, prepared, tmp_path):
  _prepare(_config(corpus, **{'cluster.workers': 2}), tmp_path)
  assert tiny_stores.file_hashes(tmp_path / 'data') == tiny_stores.file_hashes(
    prepared / 'data'
  )


@pytest.mark.parametrize('stages', [STAGES, 'chunks'])
def test_verify_names_what_is_damaged(corpus, copy, stages, capsys):
  config = _config(corpus)
  _prepare(config, copy, stages)
  assert 'checksums, chunks-valid' in capsys.readouterr().out
  file = copy / 'data' / 'tokens' / 'tokens-000001.npy'
  tiny_stores.flip(file)
  with pytest.raises(ValueError, match='tokens-000001.npy: damaged') as error:
    _prepare(config, copy, stages)
  assert '\n' not in str(error.value)


def test_another_tokenizer_than_the_one_that_stands(corpus, copy, tmp_path):
  texts = [
    f'queen tensor apple moon river {i} ground corn mill' for i in range(50)
  ]
  other = tmp_path / 'other'
  tokenization.train_sentencepiece(texts, other / 'model', 292)
  config = _config(corpus, **{'tokenizer.path': str(other)})
  with pytest.raises(ValueError, match='already, but.*other') as error:
    _prepare(config, copy)
  assert '\n' not in str(error.value)


def _documents(data):
  chunks = data.chunks('train')
  return np.unique(chunks.documents(np.arange(chunks.num_chunks))).tolist()


def test_near_duplicates_of_an_evaluation_set_leave_the_datastore(
  corpus, copy, tmp_path, capsys, caplog
):
  shutil.rmtree(copy / 'data' / 'chunks-train')
  shutil.copytree(copy / 'data', tmp_path / 'fresh' / 'data')
  stages = 'duplicates,chunks'
  config = _config(corpus, **{'deduplicate.threshold': 0.8})
  _prepare(config, copy, stages)
  data = retro_data.DataFolder.of(config, copy)
  kept, before = (
    _documents(data),
    tiny_stores.file_hashes(copy / 'data' / 'duplicates'),
  )
  text = data.tokenizer.decode(data.tokens.document(kept[0])[1:])
  (tmp_path / 'other.txt').write_text(text)
  other = {'name': 'other', 'corpus': _texts(tmp_path / 'other.txt')}
  capsys.readouterr()
  # Existing data stay; a warning says that they may contain the set.
  _prepare(config, copy, stages, **other)
  assert 'duplicates of tokens-other not looked for' in _words(capsys)
  assert 'without a look at this evaluation set' in caplog.text
  assert tiny_stores.file_hashes(copy / 'data' / 'duplicates') == before
  caplog.clear()
  for _ in range(2):
    _prepare(config, tmp_path / 'fresh', stages, **other)
    assert 'duplicates of tokens-other left out' in _words(capsys)
  assert 'without a look' not in caplog.text
  fresh = retro_data.DataFolder.of(config, tmp_path / 'fresh')
  assert set(_documents(fresh)) < set(kept) and kept[0] not in _documents(fresh)
  # So it is after an update.
  new = retro_data.DataFolder(tmp_path / 'new')
  fresh.tokenizer.save(new.tokenizer_path)
  retro_update._cut(config, fresh, new, [])
  assert _documents(new) == _documents(fresh)
  assert near_duplicates.compared_with(new.duplicates) == (
    near_duplicates.compared_with(fresh.duplicates)
  )


def _texts(path):
  return corpus_lib.CorpusConfig(kind='text', path=str(path))


def _words(capsys):
  return ' '.join(capsys.readouterr().out.replace('\u2502', ' ').split())


@pytest.fixture
def letters(monkeypatch):
  """An embedder without a model."""
  found = neighbors_test.LetterEmbedder()
  monkeypatch.setattr(datastore_lib, 'load_embedder', lambda config: found)


def test_an_evaluation_set_of_another_corpus(
  corpus, copy, tmp_path, letters, capsys
):
  (tmp_path / 'other.txt').write_text('Nobody had ground an old river. ' * 9)
  other = {'name': 'other', 'corpus': _texts(tmp_path / 'other.txt')}
  config = _config(corpus, **{'index.num_queries': 5})
  _prepare(config, copy, 'vectors,index,neighbors,evaluation', **other)
  data = retro_data.DataFolder.of(config, copy)
  reader = loading.chunk_reader(config, data, 'other', 2)
  chunks = data.chunks('other')
  row = reader.read(np.arange(chunks.num_chunks))
  text = data.tokenizer.decode(row['tokens'][row['segment_ids'] > 0])
  assert 'Nobody had ground an old river. Nobody' in text
  assert row['neighbor_mask'].any((1, 2)).all()
  found = data.neighbors('other').ids(np.arange(chunks.num_chunks))
  assert found.max() < data.chunks('train').num_chunks and (found >= 0).all()
  _words(capsys)
  _prepare(config, copy, 'evaluation', **other)
  said = _words(capsys)
  for kind in ('tokens', 'chunks', 'vectors', 'neighbors'):
    assert f'checksums, {kind}-other right' in said
  assert 'near-duplicates' not in said
  with pytest.raises(ValueError, match='name'):
    retro_prepare.Evaluation(name='train')


def test_nothing_is_held_out(corpus, prepared, tmp_path, letters):
  for name in ('tokenizer', 'tokens'):
    shutil.copytree(prepared / 'data' / name, tmp_path / 'data' / name)
  fields = {'valid_fraction': 0.0, 'test_fraction': 0.0}
  config = _config(corpus, **fields, **{'index.num_queries': 5})
  _prepare(config, tmp_path, 'chunks,vectors,index,neighbors')
  data = retro_data.DataFolder.of(config, tmp_path)
  assert data.corpus_splits == ['train']
  assert len(_documents(data)) == data.tokens.num_documents
  with pytest.raises(ValueError, match='eval_batches'):
    retro_task.make_task(config, data)
  config = dataclasses.replace(config, eval_batches=0, num_workers=0)
  batches = retro_task.make_task(config, data).dataset('train')
  assert len(next(iter(batches))['tokens']) == config.batch_size
