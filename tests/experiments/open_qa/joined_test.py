# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Several runs asked as one, against one run over all documents."""

import dataclasses
import json
import types

import jax
import numpy as np
import pytest

from experiments import ask, retrieve
from experiments.engine import configs
from experiments.open_qa import trained_reader
import realm_jax
from realm_jax.data import folder as realm_data
from realm_jax.trained import loading
from tests.experiments.open_qa import tiny_open_qa
from tests.retrieval.text import tiny_blocks

QUESTIONS = ['The mill of 1066 stood in?', 'Was Rome in the river?', 'Paris?']


def _run(root, rows):
  """Writes the data and the run of an untrained reader; returns the run."""
  data, workdir = root / 'data', root / 'run'
  made = {'metadata': 'year'} if root.name != 'q' else {}
  tiny_blocks.make(data, np.random.default_rng(0), given=rows, **made)
  config = tiny_open_qa.get_config(data)
  reader = tiny_open_qa.reader_of(config, realm_data.DataFolder(data))
  tiny_open_qa.save(workdir, reader, config)
  return workdir


@pytest.fixture(scope='module')
def rows():
  return tiny_blocks.documents(40, np.random.default_rng(1))


@pytest.fixture(scope='module')
def runs(tmp_path_factory, rows):
  """Runs over 25 and 15 documents, the second without years, and over all."""
  root = tmp_path_factory.mktemp('joined')
  parts = {'p': rows[:25], 'q': rows[25:], 'whole': rows}
  return [_run(root / name, part) for name, part in parts.items()]


@pytest.fixture(scope='module')
def readers(runs):
  return realm_jax.load(runs[:2]), realm_jax.load(runs[2])


@pytest.mark.parametrize(
  'kind',
  [
    'weighted',  # of dense and bm25
    *(pytest.param(x, marks=pytest.mark.slow) for x in ('dense', 'bm25')),
  ],
)
def test_the_answers_are_those_of_one_folder(readers, kind):
  both, whole = (x.with_retriever(kind).answer(QUESTIONS) for x in readers)
  for have, expected in zip(both, whole, strict=True):
    np.testing.assert_array_equal(have.beam, expected.beam)
    assert len(have.answers) == len(expected.answers) == 20
    for one, other in zip(have.answers, expected.answers, strict=True):
      assert (one.text, one.title) == (other.text, other.title)
      assert one.document in (f'p:{other.document}', f'q:{other.document}')
      assert one.score == pytest.approx(other.score, abs=1e-5)
      assert one.highlight == other.highlight


def test_an_update_of_one_folder_is_seen(runs, rows, tmp_path):
  new = [*rows[25:], {'id': 'new', 'title': 'Z', 'text': 'Zyx was in Rome.'}]
  _run(tmp_path / 'q', new)
  names = f'{runs[0]},{runs[1]}', f',{tmp_path / "q/data"}'
  reader = trained_reader.open_reader(*names).with_retriever('bm25')
  [answered] = reader.answer('Where was zyx?')
  assert answered.answers[0].document.endswith(':new')


def test_words_find_where_embedders_differ(readers):
  first, second = readers[0].parts
  moved = jax.tree.map(lambda x: x + 0.3, second.params['embedder'])
  params = {**second.params, 'embedder': moved}
  reader = loading.join([first, dataclasses.replace(second, params=params)])
  assert reader.config.retriever == 'bm25'
  with pytest.raises(ValueError, match="^retriever='weighted'.*'p', 'q'"):
    reader.with_retriever('weighted').open_retriever()


def test_commands_take_several_folders(runs, tmp_path, monkeypatch, capsys):
  workdir = f'{runs[0]},{runs[1]}'
  values = {'question': QUESTIONS[:1], 'retriever': 'bm25'}
  values |= {'output': f'{tmp_path}/a.jsonl'}

  def use(command, **others):
    given = tiny_open_qa.Flags(**values | others)
    monkeypatch.setattr(command, 'flags', types.SimpleNamespace(FLAGS=given))

  config = tiny_open_qa.get_config(runs[0].parent / 'data')
  config = configs.replaced(config, data_dir='')
  use(ask)
  where = configs.replaced(config, **{'lookup.where': "{'year': 2003}"})
  ask.run(where, workdir)
  record = json.loads((tmp_path / 'a.jsonl').read_text())
  documents = [x['document'] for x in (record, *record['runner_ups'])]
  assert {*documents} == {'p:d3'}
  use(ask, packaged=True)
  with pytest.raises(ValueError, match='--packaged'):
    ask.run(config, workdir)

  questions = tmp_path / 'questions.jsonl'
  line = {'id': 'q0', 'question': QUESTIONS[0], 'answer': ['Paris']}
  questions.write_text(json.dumps(line) + '\n')
  evaluate = retrieve.Evaluate(questions=(f'custom:test={questions}',))
  config = configs.replaced(config, **{'questions.allow_other_counts': True})
  output = tmp_path / 'retrieval'
  values |= {'kinds': ['bm25', 'dense'], 'output': str(output)}
  use(retrieve)
  retrieve.run(config, workdir, evaluate)
  assert 'bm25' in capsys.readouterr().out
  lines = (output / 'custom_test.dense.run').read_text().splitlines()
  assert {x.split()[2][:2] for x in lines} <= {'p:', 'q:'}
  use(retrieve, output='')
  with pytest.raises(ValueError, match='--output'):
    retrieve.run(config, workdir, evaluate)


def test_folders_that_do_not_fit_are_refused(runs, readers, rows, tmp_path):
  with pytest.raises(ValueError, match='data_dir'):
    trained_reader.open_reader(f'{runs[0]},{runs[1]}', 'a,b,c')
  with pytest.raises(ValueError, match='^data_dir='):
    realm_jax.load(runs[:2], ['a'])
  with pytest.raises(FileNotFoundError, match='no trained model'):
    trained_reader.open_reader(f'{runs[0]},{tmp_path}/none')
  rng, (first, second) = np.random.default_rng(0), readers[0].parts
  tiny_blocks.make(tmp_path, rng, given=rows[:9], max_length=28)
  other = dataclasses.replace(second, data=realm_data.DataFolder(tmp_path))
  with pytest.raises(ValueError, match='at most 28.*blocks.max_length is 32'):
    loading.join([first, other])
