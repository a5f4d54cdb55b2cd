# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A tiny decoder scores documents and answers questions, with and without passages."""

import dataclasses
import functools
import json

import numpy as np
import pytest

from experiments.in_context import evaluate as in_context_evaluate
from retrieval.questions import dpr_json, question_sets, scoring
from retro_jax.data import folder as retro_data, qa_rows
from retro_jax.evaluation import evaluate
from retro_jax.nn import retro as model
from retro_jax.trained import language_model, loading
from retro_jax.views import samples as views
from tests.experiments.retro import tiny_config, tiny_retro
from tests.experiments.retro_qa import tiny_questions
from tests.retro_jax.data import tiny_data
from tests.retro_jax.nn import tiny

ANSWERS = tiny_questions.ANSWERS


@pytest.fixture(scope='module')
def root(tmp_path_factory):
  """Data with BM25, questions, and what was retrieved for them."""
  root = tiny_data.make(tmp_path_factory.mktemp('data'))
  tiny_questions.write(root, 'apple {}', 3)
  return root


@pytest.fixture
def trained(root, monkeypatch):
  """A public decoder with random parameters, as `language_model.load` gives it."""
  found = tiny_retro.trained(root, baseline=True)
  c = tiny.config(num_layers=1, cca_layers=(), vocab_size=300, **tiny.LLAMA)
  data = retro_data.DataFolder(root, 'bm25')
  found = dataclasses.replace(
    found, model=model.Retro(c), params=tiny.params(c), data=data
  )
  monkeypatch.setattr(language_model, 'load', lambda *_, **__: found)
  return found


def _run(root, workdir, answers=True, **fields):
  spec = f'={root}/questions.jsonl'
  if answers:
    fields = {
      'questions': (f'custom:test{spec}',),
      'answering.examples': (f'custom:train{spec}',),
      'answering.passages': (str(root / 'results.json'),),
    } | fields
  name = 'in_context_smollm2'
  evaluate = tiny_config.section('evaluate', name, **fields)
  in_context_evaluate.evaluate(tiny_config.of(name), str(workdir), evaluate)


def test_bits_per_byte_with_and_without(root, trained, tmp_path, capsys):
  _run(root, tmp_path, answers=False, **{'in_context.window': 256})
  found = json.loads((tmp_path / 'in_context.json').read_text())
  off, on = found['rows']
  assert found['source'] == 'bm25' and on['minus_off'] and not off['minus_off']
  assert off['tokens'] == on['tokens'] > 0
  assert off['bits_per_byte'] != on['bits_per_byte']
  assert 'passages by bm25' in capsys.readouterr().out
  # Documents that fit a window, without passages: as in any evaluation.
  reader = loading.chunk_reader(trained.config, trained.data, 'test', 0)
  wanted = evaluate.evaluate(
    functools.partial(loading.batch_nll, trained.model, trained.params),
    reader,
    sequence_chunks=32,
    retrieval='off',
    max_documents=3,
  )
  assert off['nats'] == pytest.approx(wanted.nats.sum(), rel=1e-5)


def test_answers_with_and_without(root, trained, tmp_path, monkeypatch, capsys):
  prompts, texts = [], iter(['moon'] * 3 + list(ANSWERS.values()))
  tokenizer = trained.data.tokenizer

  def sample(self, shown, **settings):
    prompts.append([tokenizer.decode(x.ids) for x in shown])
    assert settings['max_new_tokens'] == 4
    ends = [next(texts) for _ in shown]
    return [views.TextSample(x, '', [], completion=f' {x}') for x in ends]

  monkeypatch.setattr(language_model.LanguageModel, 'sample', sample)
  _run(root, tmp_path)
  rows = json.loads((tmp_path / 'in_context_qa.json').read_text())['rows']
  assert [x['retrieval'] for x in rows] == ['off', 'on']
  assert rows[0]['official_exact_match']['mean'] == pytest.approx(1 / 3)
  assert rows[1]['official_exact_match']['mean'] == 1
  gain = rows[1]['official_exact_match, less off']['mean']
  assert gain == pytest.approx(2 / 3)
  assert 'custom:test, on' in capsys.readouterr().out
  [asked] = question_sets.load_sets(
    (f'custom:test={root}/questions.jsonl',), 0, False
  )
  predicted = scoring.read_predictions(
    tmp_path / 'predictions_custom_test_on.jsonl'
  )
  scores = scoring.score_predictions(asked, predicted)
  assert scores.values['official_exact_match'].all()
  # The twin's prompts are the same without passages.
  for off, on in zip(*prompts, strict=True):
    shared, question = off.rsplit('Question', 1)
    assert shared.count('Question') == 2 and on.startswith(f'{shared}T: ')
    assert on.endswith(question)


def test_a_prompt_in_full(root):
  tokenizer = retro_data.DataFolder(root).tokenizer
  passages = [
    dpr_json.Context(title='T', text='apple ' * 9),
    dpr_json.Context(title='', text='moon'),
  ]
  closed, opened = (
    qa_rows.few_shot_prompt(
      tokenizer, [('who?', 'moon')], 'x?', read, passage_length=5
    )
    for read in ((), passages)
  )
  assert closed[0] == tokenizer.bos_id
  task = 'Answer each question in a few words.\n\n'
  example, asked = 'Question: who?\nAnswer: moon\n\n', 'Question: x?\nAnswer:'
  assert tokenizer.decode(closed) == task + example + asked
  text = tokenizer.decode(opened)
  assert text.startswith(f'{task}{example}T: ')
  assert text.endswith(f'moon\n\n{asked}')
  end = len(tokenizer.encode('\n\n').ids)
  first = tokenizer.encode('moon').ids
  assert len(opened) == len(closed) + 5 + len(first) + 2 * end


def test_answers_are_written_by_the_decoder(root, trained, tmp_path):
  _run(root, tmp_path)
  off, on = (
    scoring.read_predictions(tmp_path / f'predictions_custom_test_{x}.jsonl')
    for x in ('off', 'on')
  )
  assert len(off) == len(on) == 3
  for row in off + on:
    assert row['prediction'] and '\n' not in row['prediction']


def test_what_is_missing_is_named(root, trained, tmp_path, monkeypatch):
  for fields, message in (
    ({'answering.passages': ()}, 'answering.passages is empty'),
    ({'answering.examples': ()}, 'answering.examples'),
    ({'answering.num_examples': 9}, '3 questions .*num_examples=9'),
    ({'in_context.window': 9}, 'in_context.window=9'),
  ):
    with pytest.raises(ValueError, match=message):
      _run(root, tmp_path, **fields)
  retro = dataclasses.replace(trained, model=model.Retro(tiny.config()))
  monkeypatch.setattr(language_model, 'load', lambda *_, **__: retro)
  with pytest.raises(ValueError, match='a RETRO; expected a decoder without'):
    _run(root, tmp_path)
  assert not np.any([*tmp_path.iterdir()])
