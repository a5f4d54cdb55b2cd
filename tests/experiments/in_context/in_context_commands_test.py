# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A tiny decoder scores documents and answers questions, with and without passages."""

import dataclasses
import json

import numpy as np
import pytest

from experiments.in_context import evaluate as in_context_evaluate
from retrieval.questions import question_sets, scoring
from retro_jax.data import folder as retro_data, qa_rows
from retro_jax.decoding import shared_prefix
from retro_jax.evaluation import evaluate
from retro_jax.nn import retro as model
from retro_jax.trained import language_model, loading
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
  c = dataclasses.replace(
    tiny.config(num_layers=1, cca_layers=(), vocab_size=300, **tiny.LLAMA)
  )
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
    lambda row: (
      loading.batch_nll(trained.model, trained.params, row)
      .reshape(len(row['tokens']), -1, tiny_data.M)
      .sum(-1)
    ),
    reader,
    sequence_chunks=32,
    retrieval='off',
    max_documents=3,
  )
  assert off['nats'] == pytest.approx(wanted.nats.sum(), rel=1e-5)


def test_answers_with_and_without(root, trained, tmp_path, monkeypatch, capsys):
  prompts, texts = [], iter(['moon'] * 3 + list(ANSWERS.values()))
  tokenizer = trained.data.tokenizer

  def write(model, params, prefix, tails, **settings):
    prompts.append((tokenizer.decode(prefix), [*map(tokenizer.decode, tails)]))
    assert settings['max_new_tokens'] == 4
    ends = [
      tokenizer.encode(f' {next(texts)}\nmore').ids.tolist() for _ in tails
    ]
    assert all(settings['is_done'](x) for x in ends)
    return ends

  monkeypatch.setattr(shared_prefix, 'write', write)
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
  (shared, closed), (same, opened) = prompts
  assert shared == same and shared.count('Question') == 2
  for off, on in zip(closed, opened, strict=True):
    assert on.endswith(off) and len(on) > len(off) and on.startswith('T: ')


def test_a_prompt_in_full(root):
  data = retro_data.DataFolder(root)
  writer = qa_rows.PromptWriter(data.tokenizer, 5)
  decode = data.tokenizer.decode
  prefix = writer.prefix([('who?', 'moon')])
  assert prefix[0] == data.tokenizer.bos_id
  assert decode(prefix) == (
    'Answer each question in a few words.\n\nQuestion: who?\nAnswer: moon\n\n'
  )
  passages = [
    qa_rows.Passage(title='T', text='apple ' * 9),
    qa_rows.Passage(title='', text='moon'),
  ]
  closed, opened = writer.tail('x?'), writer.tail('x?', passages)
  assert decode(closed) == 'Question: x?\nAnswer:'
  assert decode(opened).startswith('T: ')
  assert decode(opened).endswith('moon\n\nQuestion: x?\nAnswer:')
  end = len(data.tokenizer.encode('\n\n').ids)
  first = data.tokenizer.encode('moon').ids
  assert len(opened) == len(closed) + 5 + len(first) + 2 * end
  eos = data.tokenizer.eos_id
  ids = data.tokenizer.encode(' queen  river').ids.tolist()
  assert not writer.is_done(ids) and writer.is_done([*ids, eos])
  assert writer.answer([*ids, eos]) == 'queen river'
  assert writer.answer([eos]) == writer.answer(ids[:0]) == ''


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
