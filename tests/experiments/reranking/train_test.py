# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Examples of re-rankers, their training, and a trained one in use."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from configs import reranking_small
from experiments.engine import checkpoint_writer, configs, loop
from experiments.open_qa import (
  evaluate as evaluators,
  rankings,
)
from experiments.reranking import config as config_lib, examples, task
from realm_jax.trained import loading
from retrieval.index import retrievers
from retrieval.nn import cross_encoder
from retrieval.questions import answers, question_sets
from retrieval.search import rerank, retriever as retriever_lib
from tests.experiments.open_qa import tiny_open_qa
from tests.experiments.retro import tiny_config
from tests.retro_jax.data import tiny_data


@pytest.fixture(scope='module')
def reader(tmp_path_factory):
  return tiny_open_qa.untrained(tmp_path_factory.mktemp('qa')).workdir


def _config(reader, **fields):
  data = loading.load(reader, part='reader').data
  c = reranking_small.get_config('test')
  c.tokenizer = str(data.tokenizer_path)
  c.model.vocab_size = data.tokenizer.vocab_size
  c.examples.update(run=str(reader), depth=8)
  spec = f'{data.root}/questions.jsonl'
  c.questions.train = (f'custom:train={spec}',)
  c.questions.dev = (f'custom:dev={spec}',)
  c.batch_size = 2
  c.update(keep_checkpoints=0)
  return configs.replaced(configs.build(config_lib.Config, c), **fields)


def test_positives_answer_and_negatives_do_not(reader, tmp_path):
  config = _config(reader)
  found = examples.of_questions(config, tmp_path, 'train')
  questions = question_sets.of_field(config.questions, 'train')
  asked = {q.question: q for q in questions}
  assert len(found.questions) > 2
  for question, positive, negatives in zip(
    found.questions, found.positives, found.negatives, strict=True
  ):
    ids = negatives[negatives >= 0]
    rule = answers.make_rule('dpr')
    holds = rule.compile(asked[question.question].answers)
    texts = found.passages.full_texts(np.array([positive, *ids]))
    bodies = [text.split('\n', 1)[1] for text in texts]
    hits = [bool(holds(*rule.prepare([text]))) for text in bodies]
    assert hits == [True] + [False] * len(ids)
  # Two lists together are as deep as their sum; shorter ones are another store.
  config = _config(reader, **{'examples.depth': 4})
  short = examples.of_questions(config, tmp_path, 'train')
  assert short.negatives.shape == (len(short.questions), 7)
  assert short.fingerprint != found.fingerprint


def test_lists_are_joined_without_repeats():
  ids = np.array([[4, 4, 2, -1, 4, 7], [-1, -1, 3, 1, 3, 1]])
  want = [[4, -1, 2, -1, -1, 7], [-1, -1, 3, 1, -1, -1]]
  assert examples.without_repeats(ids).tolist() == want


def test_negatives_are_drawn_evenly_and_without_repeats():
  rng = np.random.default_rng(0)
  negatives = np.array([[5, 6, 7, 8], [3, -1, -1, -1]])
  counts = {x: 0 for x in (5, 6, 7, 8)}
  for _ in range(400):
    first, second = examples.draw(negatives, 2, rng).tolist()
    assert len({*first}) == 2 and second == [3, -1]
    for x in first:
      counts[x] += 1
  assert all(160 < n < 240 for n in counts.values())  # 200 expected
  assert examples.draw(negatives, 6, rng).shape == (2, 6)


def test_rows_hold_the_pairs_and_their_lengths(reader, tmp_path):
  found = examples.of_questions(_config(reader), tmp_path, 'train')
  found.negatives[0] = -1
  found.negatives[0, 0] = found.positives[1]
  found.negatives[1] = found.positives[0]
  tokenizer = loading.load(reader, part='reader').data.tokenizer
  layout = cross_encoder.PairLayout(query_length=5, row_length=16)
  batch = examples.read_rows(
    found, tokenizer, layout, 2, np.array([0, 1]), np.random.default_rng(0)
  )
  assert batch['ids'].shape == (2, 3, 16)
  assert batch['valid'].tolist() == [[True, True, False], [True] * 3]
  [text] = found.passages.full_texts(found.positives[:1])
  queries = found.texts(np.arange(1))
  [row] = cross_encoder.pair_rows(tokenizer, layout, queries, [[text]])
  assert batch['ids'][0, 0, : batch['lengths'][0, 0]].tolist() == row
  assert not batch['ids'][0, 0, batch['lengths'][0, 0] :].any()


def test_chunks_have_the_candidate_that_shares_most_with_what_follows(
  tmp_path, monkeypatch
):
  (tmp_path / 'data').mkdir()
  root = tiny_data.make(tmp_path / 'data')
  config = tiny_config.of(data_dir=str(root))
  checkpoint_writer.save_params(
    str(tmp_path / 'run'),
    {'embedding': np.zeros(1, np.float32)},
    config=dataclasses.asdict(config),
  )

  def make(parts, name):
    assert name == 'oracle'
    draws = retriever_lib.Random(parts.passages)
    return rerank.Reranked(draws, rerank.Oracle(parts.passages), 100)

  monkeypatch.setattr(retrievers.Retrievers, 'make', make)
  c = reranking_small.get_config('chunks_test')
  c.examples.run = str(tmp_path / 'run')
  config = configs.build(config_lib.Config, c)
  found = examples.of_chunks(config, tmp_path / 'examples')
  assert len(found.questions) > 60
  for query, positive, negatives in zip(
    found.questions[:9], found.positives, found.negatives, strict=False
  ):
    kept = negatives[negatives >= 0]
    assert (
      query.question and positive not in kept and len({*kept}) == len(kept) > 0
    )
  again = examples.of_chunks(config, tmp_path / 'examples')
  np.testing.assert_array_equal(again.negatives, found.negatives)


@pytest.fixture(scope='module')
def whole(reader, tmp_path_factory):
  """A run of four steps."""
  workdir = tmp_path_factory.mktemp('trained') / 'whole'
  one = functools.partial(loop.train, devices=jax.devices()[:1])
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(loop, 'train', one)
    task.train(_config(reader), str(workdir))
  return workdir


def test_a_trained_model_serves_the_commands_of_questions(reader, whole):
  assert 'valid/mrr' in (whole / 'metrics.jsonl').read_text()
  trained = loading.load(reader, part='reader')
  kind = rankings.Kind(trained, f'bm25+{whole}', 4, candidates=3)
  plain = rankings.Kind(trained, 'bm25', 4)
  sets = question_sets.load_sets(tiny_open_qa.sets(trained.data.root), 0, True)
  names = rankings.Names(trained.data.blocks)
  ranked, before = (
    x.rank(sets[0].questions, names, 5, lambda *_: None) for x in (kind, plain)
  )
  assert (ranked.name, before.name) == ('bm25+whole', 'bm25')
  reranker = rerank.load(whole)
  for question in sets[0].questions:
    new, old = (
      [name for name, _ in x.run[question.id]] for x in (ranked, before)
    )
    ids = np.asarray(names.ids(old[:3], ''))
    texts = trained.data.blocks.full_texts(ids)
    [scores] = reranker.score([question.question], [texts])
    order = np.argsort(-scores, kind='stable')
    assert new == [old[i] for i in order] + old[3:]
  config = tiny_open_qa.get_config(
    trained.data.root, **{'reranker.path': str(whole)}
  )
  wanted = evaluators.Evaluate(retriever='bm25')
  found = evaluators.load(config, str(reader), wanted)
  assert found.open_retriever().reranker


def test_chunks_are_not_ranked_beside_questions():
  c = reranking_small.get_config('chunks_test')
  c.questions.dev = ('nq.jsonl',)
  with pytest.raises(ValueError, match='questions'):
    configs.build(config_lib.Config, c)
