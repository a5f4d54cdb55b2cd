# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A tiny RETRO learns a few answers by heart, with passages and closed book."""

import json
import pathlib
import types

import numpy as np
import pytest

from experiments import score
from experiments.retro_qa import (
  data as retro_qa_data,
  evaluate as retro_qa_evaluate,
  task as retro_qa_task,
)
from retrieval.questions import (
  dpr_json,
  question_files,
  question_sets,
)
from retrieval.store import checkpoints
from retro_jax.data import samples
from retro_jax.decoding import decode
from retro_jax.trained import language_model
from tests.experiments.engine import tiny_run
from tests.experiments.retro import tiny_config
from tests.experiments.retro_qa import tiny_questions
from tests.retro_jax.data import tiny_data

ANSWERS = tiny_questions.ANSWERS


@pytest.fixture(scope='module')
def root(tmp_path_factory):
  """Data, questions, and what was retrieved for them."""
  root = tiny_data.make(tmp_path_factory.mktemp('data'))
  tiny_questions.write(root)
  for arg in ('test', 'baseline_test'):
    tiny_run.make_run(
      root / arg,
      root,
      arg,
      chunk_length=tiny_data.M,
      neighbor_length=32,
      init_scale=0.2,
      # Its parameters are stacked, those of the other are not.
      layers='scanned' if arg == 'baseline_test' else 'unrolled',
    )
  return root


def _config(root, start='test', name='retro_qa', **fields):
  spec = f'={root}/questions.jsonl'
  fields = {
    'retro_from': str(root / start) if start else '',
    'questions.train': (f'custom:train{spec}',),
    'questions.dev': (f'custom:dev{spec}',),
    'qa.passages': (str(root / 'results.json'),),
    'qa.prompt_chunks': 8,
    'qa.dropout_rate': 0.0,
    'optimizer.learning_rate': 1e-2,
    'num_steps': 30,
    'eval_every': 30,
    'checkpoint_every': 30,
  } | fields
  return tiny_config.of(name, **fields)


def _evaluate(root, config, workdir):
  questions = (f'custom:test={root}/questions.jsonl',)
  evaluate = tiny_config.section('evaluate', 'retro_qa', questions=questions)
  retro_qa_evaluate.evaluate(config, str(workdir), evaluate)


@pytest.fixture(scope='module')
def run(root, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('qa')
  retro_qa_task.train(_config(root), str(workdir))
  return workdir


def test_answers_are_learned_and_scored(root, run, capsys):
  _evaluate(root, _config(root), run)
  rows = json.loads((run / 'retro_qa.json').read_text())['rows']
  on, off = rows
  assert (on['retrieval'], off['retrieval']) == ('on', 'off')
  assert on['exact_match'] == 100 and on['f1']['mean'] == 1
  assert 'custom:test, on' in capsys.readouterr().out
  report = score.score(
    run / 'predictions_custom_test_on.jsonl',
    question_sets.load(f'custom:test={root}/questions.jsonl'),
  )
  assert report['metrics']['official_exact_match']['mean'] == 1


def _fid_config(root, start='test', **fields):
  """A FiD that starts from a run; a longer passage has room for the question."""
  fields = {
    'eval_every': 15,
    'checkpoint_every': 15,
    'qa.prompt_chunks': 3,
    'qa.passage_length': 40,
    'qa.answer_length': 8,
  } | fields
  return _config(root, start, 'fid_qa', **fields)


@pytest.fixture(scope='module')
def fid_run(root, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('fid')
  retro_qa_task.train(_fid_config(root), str(workdir))
  return workdir


@pytest.mark.slow
def test_a_fid_learns_and_is_scored_apart(root, fid_run, capsys):
  _evaluate(root, _fid_config(root), fid_run)
  on, off = json.loads((fid_run / 'fid_qa.json').read_text())['rows']
  assert (on['retrieval'], off['retrieval']) == ('on', 'off')
  assert (
    on['exact_match'] == 100 and 'custom:test, on' in capsys.readouterr().out
  )
  assert not (fid_run / 'retro_qa.json').exists()
  c = language_model.load(fid_run).model.config
  assert (c.cca_layers, c.query_conditioning) == ((1, 2), False)
  assert (c.chunk_length, c.neighbor_length) == (8, 40)


@pytest.mark.slow
def test_a_baseline_becomes_a_fid_or_its_closed_book_twin(root, tmp_path):
  """The baseline has stacked layers; the twin of a RETRO has its own encoder."""
  fields = {'qa.reader': 'closed_book', 'num_steps': 15}
  config = _fid_config(root, 'baseline_test', **fields)
  retro_qa_task.train(config, str(tmp_path))
  _evaluate(root, config, tmp_path)
  (row,) = json.loads((tmp_path / 'fid_qa.json').read_text())['rows']
  assert row['name'] == 'baseline' and not (tmp_path / 'passages').exists()
  before, _ = checkpoints.load_params(str(root / 'baseline_test'))
  after, _ = checkpoints.load_params(str(tmp_path))
  assert {*after} - {*before} == {'encoder', 'layers_cca'}
  writer = retro_qa_data.writer(
    config, language_model.load(root / 'test').data.tokenizer
  )
  assert writer.layout.num_neighbors == 1


def test_the_baseline_is_the_closed_book(root, tmp_path):
  config = _config(root, 'baseline_test', **{'num_steps': 4})
  retro_qa_task.train(config, str(tmp_path))
  assert not language_model.load(tmp_path).model.config.cca_layers
  _evaluate(root, config, tmp_path)
  found = json.loads((tmp_path / 'retro_qa.json').read_text())
  (row,) = found['rows']
  assert row['name'] == 'baseline' and not (tmp_path / 'passages').exists()


class _Index:
  """Neighbors by the question's length, and how often it was asked."""

  fingerprint = 'f'

  def __init__(self, data):
    self.asked, self.data = 0, data
    self.tokenizer = data.tokenizer

  def retrieve(self, texts, k, questions):
    assert questions
    self.asked += len(texts)
    ids = np.array([[len(text) + i for i in range(k)] for text in texts])
    ids[:, -1] = -1
    tokens, mask = self.data.chunks('train').gather(ids, tiny_data.R)
    titles = [[f'T{i}' for i in row] for row in ids]
    found = zip(ids, -1.0 * ids, tokens, mask, titles, strict=True)
    return [samples.ChunkNeighbors(*row) for row in found]


def test_the_datastore_is_searched_once(root, tmp_path):
  trained = language_model.load(root / 'test')
  index = _Index(trained.data)
  datastore = types.SimpleNamespace(index=index, lookup=lambda config: index)
  data = types.SimpleNamespace(datastore=datastore)
  fake = types.SimpleNamespace(config=trained.config, data=data)
  questions = question_sets.load(
    f'custom:test={root}/questions.jsonl'
  ).questions
  config = _config(root, **{'qa.passages': (), 'qa.num_passages': 3})
  for _ in range(2):
    found = retro_qa_data.passages(fake, config, questions, tmp_path / 'p')
  assert index.asked == 3
  assert [len(x) for x in found] == [2, 2, 2]
  tokens, mask = trained.data.chunks('train').gather(
    np.array([len('who?')]), tiny_data.R
  )
  text = trained.data.tokenizer.decode(tokens[0][mask[0]])
  assert (found[0][0].title, found[0][0].text) == ('T4', text)
  # In DPR's form, for others to score.
  (path,) = (tmp_path / 'p').glob('*')
  results = list(dpr_json.read_results(path))
  assert results[0].question == 'who?' and results[0].contexts[0].id == '4'
  retro_qa_data.passages(fake, config, questions[:2], tmp_path / 'p')
  assert index.asked == 5


def test_questions_without_an_answer_in_text_are_left_out(root, tmp_path):
  question = question_files.Question
  questions = [
    question('1', 'when?', (r'july\s+1969',), 'regex'),
    question('2', 'what?', ('a', 'b')),
    question('3', 'who?', ()),
  ]
  config = retro_qa_task.adopt(_config(root, 'baseline_test'))
  (example,) = retro_qa_data.examples(None, config, questions, tmp_path)
  assert (example.answers, example.contexts) == (('a', 'b'), ())


def test_passages_are_read(root, run, tmp_path, monkeypatch):
  config = retro_qa_task.adopt(_config(root))
  trained = language_model.load(root / 'test')
  decode_tokens = trained.data.tokenizer.decode
  task = retro_qa_task.make_task(config, trained, tmp_path)
  batch = next(iter(task.dataset('train')))
  for tokens, neighbors in zip(
    batch['tokens'], batch['neighbors'], strict=True
  ):
    question = next(q for q in ANSWERS if q in decode_tokens(tokens))
    read = decode_tokens(neighbors.reshape(-1))
    assert [a in read for a in ANSWERS.values()] == [
      q == question for q in ANSWERS
    ]
  asked, sample = [], decode.sample

  def spy(model, params, prompts, *args, **kwargs):
    asked.append([prompt.neighbors for prompt in prompts])
    return sample(model, params, prompts, *args, **kwargs)

  monkeypatch.setattr(decode, 'sample', spy)
  _evaluate(root, _config(root), run)
  on, off = asked
  for neighbors, answer in zip(on, ANSWERS.values(), strict=False):
    assert answer in decode_tokens(neighbors[-2].tokens.reshape(-1))
  assert not any(off)


def test_bad_input_is_one_line(root, tmp_path, run):
  def train(**fields):
    retro_qa_task.train(_config(root, **fields), str(tmp_path))

  with pytest.raises(ValueError, match='retro_from is empty'):
    train(retro_from='')
  with pytest.raises(FileNotFoundError, match='nowhere'):
    train(retro_from=str(tmp_path / 'nowhere'))
  with pytest.raises(ValueError, match='questions.train is empty'):
    train(**{'questions.train': ()})
  with pytest.raises(FileNotFoundError, match='missing.json'):
    train(**{'qa.passages': (str(tmp_path / 'missing.json'),)})
  other = tmp_path / 'other.json'
  dpr_json.write_results(other, [dpr_json.Result(question='another?')])
  with pytest.raises(ValueError, match=r"none of the 3 questions.*'who\?'"):
    train(**{'qa.passages': (str(other),)})
  with pytest.raises(
    ValueError, match="test: config.task='retro': expected .*retro_qa"
  ):
    _evaluate(root, _config(root), root / 'test')
  assert not list(pathlib.Path(tmp_path).glob('checkpoints/*'))
