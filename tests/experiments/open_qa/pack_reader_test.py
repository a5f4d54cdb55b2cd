# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A reader packed, and taken over another folder without training."""

import json
import os
import types

import pytest

from experiments.engine import checkpoint_writer
from experiments.engine import command
from experiments.open_qa import ask
from experiments.open_qa import beam_task
from experiments.open_qa import pack_reader
from experiments.open_qa import task as qa_task
from realm_jax.data import folder as realm_data
from realm_jax.serving import packaged_reader
from retrieval.store import checkpoints
from tests.experiments.open_qa import tiny_open_qa

ASKED = 'The mill of 1066 stood in the river?'


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """A checkpoint whose retriever is BM25, and its reader packed."""
  data = tiny_open_qa.make_data(tmp_path_factory.mktemp('pack') / 'data')
  config = tiny_open_qa.get_config(data, 'bm25_test')
  trained = qa_task.untrained(config, realm_data.DataFolder(data))
  workdir = tmp_path_factory.mktemp('run')
  checkpoint_writer.save_params(
    str(workdir),
    trained.params,
    config=json.loads(config.to_json()),
    fingerprints=trained.data.fingerprints(),
  )
  folder = tmp_path_factory.mktemp('packed')
  pack_reader.pack(workdir, folder)
  return types.SimpleNamespace(config=config, workdir=workdir, folder=folder)


@pytest.fixture
def packed(run, monkeypatch):
  monkeypatch.setattr(packaged_reader, 'FOLDER', run.folder)
  return run


def test_answers_are_those_of_the_run_but_for_rounding(packed, tmp_path):
  config = command.changed(packed.config, seed=7)  # nothing else is random
  ask.take_packaged(config, tmp_path)
  [wanted] = ask.ask(ask.open_answerer(packed.workdir), ASKED)
  [found] = ask.ask(ask.open_answerer(tmp_path), ASKED)
  by_place = {(a.block, a.start, a.width): a.score for a in wanted.answers}
  same = [a for a in found.answers if (a.block, a.start, a.width) in by_place]
  assert len(same) >= 0.8 * len(by_place)
  for answer in same:
    place = (answer.block, answer.start, answer.width)
    assert answer.score == pytest.approx(by_place[place], abs=0.05)


def test_a_checkpoint_is_made_once_and_of_one_corpus(packed, tmp_path):
  ask.take_packaged(packed.config, tmp_path)
  before = checkpoints.find(str(tmp_path))
  locked = packed.config.copy_and_resolve_references().lock()
  ask.take_packaged(locked, tmp_path)
  assert checkpoints.find(str(tmp_path)) == before
  with pytest.raises(ValueError, match='expected another --workdir'):
    ask.take_packaged(
      command.changed(packed.config, corpus={'path': 'other'}), tmp_path
    )


def test_a_corpus_that_changed_after_the_data_were_made_is_told(
  packed, tmp_path, monkeypatch
):
  file = tmp_path / 'mine.jsonl'
  file.write_text('{}')
  config = command.changed(packed.config, corpus={'path': str(file)})
  saved = types.SimpleNamespace(config=config)
  monkeypatch.setattr(ask.checkpoints, 'find', lambda _: saved)
  told = []
  monkeypatch.setattr(ask.logging, 'warning', lambda *line: told.append(line))
  ask.take_packaged(config, tmp_path)  # nothing was made yet
  (tmp_path / 'data' / 'tokens').mkdir(parents=True)
  os.utime(file, (1, 1))
  ask.take_packaged(config, tmp_path)
  assert not told
  os.utime(tmp_path / 'data' / 'tokens', (0, 0))
  ask.take_packaged(config, tmp_path)
  [(line, path, _)] = told
  assert 'open_qa.update' in line and path == str(file)


def test_another_tokenizer_or_reader_is_refused(packed, tmp_path):
  made = packaged_reader.load_config()
  packaged_reader.FOLDER.joinpath('config.json').write_text(
    json.dumps(made | {'tokenizer': 'abc'})
  )
  with pytest.raises(ValueError, match='has tokenizer abc, the config'):
    pack_reader.unpack(packed.config, tmp_path)
  packaged_reader.FOLDER.joinpath('config.json').write_text(json.dumps(made))
  config = command.changed(packed.config, reader={'max_span_width': 3})
  with pytest.raises(ValueError, match='has reader'):
    pack_reader.unpack(config, tmp_path)


def test_training_starts_from_it(packed):
  config = command.changed(packed.config, encoder_from='packaged', seed=7)
  data = realm_data.DataFolder.of(config, packed.workdir)
  params = qa_task.untrained(config, data).params
  wanted = packaged_reader.load()['reader']['span_score']['kernel']
  assert (params['reader']['span_score']['kernel'] == wanted).all()


def test_a_run_of_realm_goes_before_it(packed):
  fields = {'encoder_from': 'packaged', 'realm_from': 'runs/realm'}
  found = beam_task.starts(command.changed(packed.config, **fields))
  assert found.encoder_from == found.embedder_from == 'runs/realm'
  fields['encoder_from'] = 'runs/mlm'
  found = beam_task.starts(command.changed(packed.config, **fields))
  assert found.encoder_from == 'runs/mlm'


def test_a_package_without_reader_says_how_to_train_one(
  run, monkeypatch, tmp_path
):
  monkeypatch.setattr(packaged_reader, 'FOLDER', tmp_path)
  with pytest.raises(FileNotFoundError, match=r'train one: .*open_qa.train'):
    ask.take_packaged(run.config, tmp_path / 'new')
  assert not (tmp_path / 'new').exists()
