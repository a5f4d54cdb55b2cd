# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A decoder asks as it was taught; prompts hold their answers."""

from flax import linen as nn
import jax
import numpy as np
import pytest

from experiments.accelerators import make_questions, question_prompts
from experiments.engine import reports
from retrieval.text import corpus as corpus_lib, taggers
from retro_jax.nn import config as model_config, initial

_TEXT = (
  'Zorgon is a town of 300 people. It was founded by Ada Quill in 1804. '
  'Its mill burned down in 1911. '
) * 9


def test_passages_end_with_a_sentence():
  found = question_prompts.passages(_TEXT)
  assert len(found) == 2
  for passage in found:
    assert passage in _TEXT and passage.endswith('.')
    assert 80 < len(passage) <= 600
  assert found[0] + ' ' + found[1] in _TEXT


def test_answers_lie_where_they_are_said_to():
  document = corpus_lib.Document('0', 'Zorgon', _TEXT)
  rows = [*question_prompts.ask(iter([document]), taggers.DateTagger())]
  assert {x['answers'][0] for x in rows} <= {'1804', '1911', 'Zorgon'}
  assert len({(x['context'], *x['answers']) for x in rows}) == len(rows) == 6
  for row in rows:
    [start], [answer] = row['answer_start'], row['answers']
    assert row['context'][start : start + len(answer)] == answer


class _Words:
  """A tokenizer of words, and of the end of a line."""

  def decode(self, ids):
    words = ['?', 'who', 'ran', 'the', 'Mill', '\n']
    return ' '.join(words[i] for i in ids).replace(' ?', '?')


@pytest.mark.parametrize(
  ('ids', 'answer', 'found'),
  [
    ([1, 2, 3, 4, 0, 5, 1], 'Ada', 'who ran the Mill?'),
    ([1, 2, 3, 4, 0, 1], 'Ada', None),  # no end
    ([1, 2, 3, 4, 5], 'Ada', None),  # no question
    ([1, 2, 3, 4, 0, 5], 'mill', None),  # holds its answer
    ([1, 0, 5], 'Ada', None),  # too short
  ],
)
def test_questions_are_whole_and_hide_their_answer(ids, answer, found):
  row = question_prompts.finish(_Words(), {'answers': [answer]}, ids)
  assert (row and row['question']) == found


def test_a_decoder_asks_what_it_was_taught(tmp_path, monkeypatch):
  monkeypatch.setattr(
    make_questions,
    '_OPTIMIZER',
    make_questions.optimizers.OptimizerConfig(
      learning_rate=1e-2, warmup_steps=0
    ),
  )
  monkeypatch.setattr(make_questions, 'QUESTION', 4)
  config = model_config.RetroConfig(
    vocab_size=16, d_model=32, d_ff=64, num_heads=2, head_dim=16, num_layers=2,
    chunk_length=4,
    neighbor_length=8,
  )  # fmt: skip
  prompts = np.asarray([[3, 4, 5, 2, 0, 0, 0, 0], [6, 7, 2, 0, 0, 0, 0, 0]])
  first, questions = [4, 3], [[8, 9, 1], [10, 11, 1]]
  whole = prompts.copy()
  for row, at, question in zip(whole, first, questions, strict=True):
    row[at : at + 3] = question
  np.savez(
    tmp_path / make_questions.PROMPTS,
    learned_tokens=whole.astype(np.uint16),
    learned_prompt=np.asarray(first),
    learned_length=np.asarray(first) + 3,
    asked_tokens=prompts[[1, 0, 1]].astype(np.uint16),
    asked_prompt=np.asarray([3, 4, 3]),
    asked_length=np.asarray([3, 4, 3]),
  )
  given = make_questions.dataclasses.asdict(config)
  reports.write_json(tmp_path / make_questions.MODEL, given)
  params = nn.unbox(initial.flat_params(jax.random.key(0), config))
  make_questions.weight_files.write(tmp_path, make_questions.DECODER, params)
  make_questions.make(tmp_path, seconds=2.0, batch=8, rows=2, dry=False)
  made = np.load(tmp_path / make_questions.MADE)['tokens'][:, :3].tolist()
  assert made == [questions[1], questions[0], questions[1]]
  batch = make_questions.draw(
    {
      'tokens': whole,
      'prompt': np.asarray(first),
      'length': np.asarray(first) + 3,
    },
    jax.random.key(1),
    size=4,
  )
  scored = np.asarray(batch['targets'])[np.asarray(batch['loss_mask'])]
  assert {*scored.tolist()} <= {1, 8, 9, 10, 11} and len(scored) == 12
