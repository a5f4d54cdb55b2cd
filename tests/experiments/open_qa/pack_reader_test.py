# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A reader packed, and taken over another folder without training."""

import json
import os
import shutil
import types

import jax
import pytest

from configs import open_qa_reader
from experiments.engine import command
from experiments.open_qa import ask, pack_reader, pack_retriever, starts
import realm_jax
from realm_jax.data import folder as realm_data
from realm_jax.nn import initialize
from realm_jax.serving import serving, trained as trained_lib
from realm_jax.serving.packages import packaged_reader, packaged_run
from retrieval.nn import sharding
from retrieval.text import corpus as corpus_lib
from tests.experiments.open_qa import tiny_open_qa

ASKED = 'The mill of 1066 stood in the river?'


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """A checkpoint whose retriever is BM25, and its reader packed."""
  data = tiny_open_qa.make_data(tmp_path_factory.mktemp('pack') / 'data')
  config = tiny_open_qa.get_config(data, 'bm25_test')
  trained = starts.untrained(config, realm_data.DataFolder(data))
  workdir = tmp_path_factory.mktemp('run')
  tiny_open_qa.save(workdir, trained, config)
  folder = tmp_path_factory.mktemp('packed')
  pack_reader.pack(workdir, folder)
  return types.SimpleNamespace(config=config, workdir=workdir, folder=folder)


@pytest.fixture
def packed(run, monkeypatch):
  monkeypatch.setattr(packaged_reader, 'FOLDER', run.folder)
  return run


def _documents(packed):
  """The documents of the packed run."""
  tokens = trained_lib.load_reader(packed.workdir).data.blocks.tokens
  return [
    {
      'id': tokens.document_id(i),
      'title': tokens.title(i),
      'text': tokens.text_bytes(i).decode(),
    }
    for i in range(tokens.num_documents)
  ]


@pytest.fixture(scope='module')
def documents(run):
  return _documents(run)


def test_answers_are_those_of_the_run_but_for_rounding(
  packed, documents, tmp_path
):
  reader = realm_jax.packaged(tmp_path, documents=documents)
  assert {*reader.params} == {'reader'}
  [wanted] = realm_jax.load(packed.workdir).answer(ASKED)
  [found] = reader.answer(ASKED)
  by_place = {(a.block, a.start, a.width): a.score for a in wanted.answers}
  same = [a for a in found.answers if (a.block, a.start, a.width) in by_place]
  assert len(same) >= 0.8 * len(by_place)
  for answer in same:
    place = (answer.block, answer.start, answer.width)
    assert answer.score == pytest.approx(by_place[place], abs=0.05)


def test_a_folder_is_prepared_once_and_of_one_corpus(
  packed, documents, tmp_path
):
  realm_jax.packaged(tmp_path, documents=documents)
  before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob('*')}
  again = realm_jax.packaged(tmp_path, documents=documents)
  after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob('*')}
  assert after == before
  assert again.data.blocks.tokens.num_documents == len(documents)
  with pytest.raises(ValueError, match='answers from other documents'):
    realm_jax.packaged(tmp_path, documents=documents[1:])
  other = corpus_lib.CorpusConfig(kind='jsonl', path='other')
  with pytest.raises(ValueError, match=r"path '.*', not '.*other'; expected"):
    realm_jax.packaged(tmp_path, corpus=other)
  with pytest.raises(ValueError, match='expected one of them'):
    realm_jax.packaged(tmp_path, documents=documents, corpus=other)


def test_the_command_takes_it_over_the_corpus_of_a_config(
  packed, documents, tmp_path, monkeypatch
):
  file = tmp_path / 'mine.jsonl'
  file.write_text(''.join(json.dumps(row) + '\n' for row in documents))
  config = command.changed(
    packed.config,
    data_dir='',
    corpus={'kind': 'jsonl', 'path': str(file)},
    prepare={'stages': 'tokenizer,tokens,blocks'},
  )
  with config.unlocked():
    config.tokenizer.path = str(packed.folder / 'tokenizer.json')
    config.index.shards = 3
  ask.take_packaged(config, tmp_path / 'run')
  assert packaged_run.unpacked_config(tmp_path / 'run').index.shards == 3
  told = []
  monkeypatch.setattr(
    packaged_run.logging, 'warning', lambda *line: told.append(line)
  )
  ask.take_packaged(config, tmp_path / 'run')
  assert not told
  config.index.shards = 2
  ask.take_packaged(config, tmp_path / 'run')
  [line] = told
  assert line[-1] == 'index.shards=3, not 2'
  [wanted] = realm_jax.packaged(tmp_path / 'other', documents=documents).answer(
    ASKED
  )
  [found] = ask.open_reader(tmp_path / 'run').answer(ASKED)
  assert found.answers == wanted.answers and found.text


def test_a_corpus_that_changed_after_the_data_were_made_is_told(
  packed, documents, tmp_path, monkeypatch
):
  file = tmp_path / 'mine.jsonl'
  file.write_text(''.join(json.dumps(row) + '\n' for row in documents))
  corpus = corpus_lib.CorpusConfig(kind='jsonl', path=str(file))
  told = []
  monkeypatch.setattr(
    packaged_run.logging, 'warning', lambda *line: told.append(line)
  )
  os.utime(file, (1, 1))
  for _ in range(2):
    packaged_run.unpack(tmp_path / 'run', corpus=corpus)
  assert not told
  os.utime(tmp_path / 'run' / 'data' / 'tokens', (0, 0))
  packaged_run.unpack(tmp_path / 'run', corpus=corpus)
  [(line, path, _)] = told
  assert 'open_qa.update' in line and path == str(file)


def test_another_tokenizer_is_refused(packed, tmp_path, monkeypatch):
  made = packaged_reader.load_config() | {'tokenizer': 'abc'}
  monkeypatch.setattr(packaged_reader, 'load_config', lambda: made)
  with pytest.raises(ValueError, match='has tokenizer abc, '):
    realm_jax.packaged(tmp_path, documents=[{'text': 'The mill.'}])


def test_training_starts_from_it(packed):
  config = command.changed(packed.config, encoder_from='packaged', seed=7)
  data = realm_data.DataFolder.of(config, packed.workdir)
  params = starts.untrained(config, data).params
  wanted = packaged_reader.load()['reader']['span_score']['kernel']
  assert (params['reader']['span_score']['kernel'] == wanted).all()


def test_a_run_of_realm_goes_before_it(packed):
  fields = {'encoder_from': 'packaged', 'realm_from': 'runs/realm'}
  found = starts.with_realm_from(command.changed(packed.config, **fields))
  assert found.encoder_from == found.embedder_from == 'runs/realm'
  fields['encoder_from'] = 'runs/mlm'
  found = starts.with_realm_from(command.changed(packed.config, **fields))
  assert found.encoder_from == 'runs/mlm'


def test_a_package_without_reader_says_how_to_train_one(
  run, monkeypatch, tmp_path
):
  monkeypatch.setattr(packaged_reader, 'FOLDER', tmp_path)
  with pytest.raises(FileNotFoundError, match=r'train one: .*open_qa.train'):
    ask.take_packaged(run.config, tmp_path / 'new')
  assert not (tmp_path / 'new').exists()


def test_the_packages_config_has_the_fields_of_today():
  made = packaged_reader.load_config()['config']
  today = json.loads(open_qa_reader.get_config().to_json())
  for name, section in made.items():
    if isinstance(section, dict):
      assert {*section} == {*today[name]}, name


def test_blocks_whose_vectors_come_with_the_package_are_found_by_these(
  run, documents, tmp_path, monkeypatch
):
  folder = shutil.copytree(run.folder, tmp_path / 'packed')
  monkeypatch.setattr(packaged_reader, 'FOLDER', folder)
  realm_jax.packaged(tmp_path / 'words', documents=documents)
  assert packaged_run.unpacked_config(tmp_path / 'words').retriever == 'bm25'
  embedder = sharding.unbox(
    initialize.init_params(
      jax.random.key(0),
      trained_lib.load_reader(run.workdir).model.config.realm,
      parts='embedder',
    )
  )
  with monkeypatch.context() as patch:
    patch.setattr(packaged_run, 'start_embedder', lambda config: embedder)
    found = pack_retriever.pack(tmp_path / 'words', folder)
  assert found['agreement_at_1'] > 0.9
  # Nothing is embedded, and the answers are those of 32 bits.
  with monkeypatch.context() as patch:
    patch.setattr(serving, 'BlockEmbedder', None)
    reader = realm_jax.packaged(tmp_path / 'vectors', documents=documents)
    assert reader.config.retriever == 'dense'
    [answered] = reader.answer(ASKED)
  assert answered.text
  other = [{'text': 'The mill of 1066 stood in the river.'}]
  reader = realm_jax.packaged(tmp_path / 'other', documents=other)
  assert reader.config.retriever == 'bm25'
