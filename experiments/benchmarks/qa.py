# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Question answering against transformers 4.40.2, as RealmForOpenQA does it.

Both sides answer questions from the same texts and fine-tune on one question at a time
with a retriever beam of 5,000; weights are random. Texts are windows of a real corpus
that fill the reader's rows; three of four hold the answer. `train` has a gold span in
the blocks that are read; `train_nothing` has no answer in any block, and our reader is
skipped.
"""

import dataclasses
import functools
import itertools
import json
import pathlib
import shutil
import types

from flax import linen as nn
import jax
import numpy as np
import optax

from experiments.benchmarks import realm as realm_benchmark, turns
from experiments.engine import optimizers
from experiments.open_qa import config as config_lib, task as task_lib
from experiments.realm import config as realm_config, prepare as prepare_lib
from realm_jax.data import folder as realm_data, question_rows
from realm_jax.nn import config as nn_config, open_qa
from realm_jax.serving import (
  beams,
  block_reader,
  model_configs,
  reader_configs,
  trained_models,
)
from retrieval import searchers
from retrieval.nn import bert_checkpoint
from retrieval.questions import questions as questions_lib
from retrieval.search import retriever as retriever_lib
from retrieval.text import corpus as corpus_lib

ANSWER = 'Ada Lovelace'
_QUESTIONS = (
  'who wrote the first program for a machine',
  'which mathematician described how an engine computes numbers',
  'what is the name of the countess who translated an essay on engines',
  'who published the notes on the analytical engine in the year 1843',
  'who saw that a machine could work on more than numbers',
  'after whom was a language of the department of defense named',
  'which daughter of a poet studied mathematics with de morgan',
  'who is celebrated on the second tuesday of october every year',
)
SIZES = realm_benchmark.ENCODER | {
  'vector_size': 128,
  'num_blocks': 100_000,
  'retriever_beam': 5000,
  'reader_beam': 5,
  'row_length': 320,
  'question_length': 32,
  'max_span_width': 10,
  'batch': 16,
  'questions': _QUESTIONS,
  'answers': (ANSWER,),
  'no_answers': ('zyx qwv',),
}
_WORDS_A_PIECE = 0.9  # at most; English has fewer words than wordpieces
_HOLDS_ANSWER = 0.75


def _config(sizes: turns.Sizes) -> config_lib.Config:
  """Return the config of our side; `rule` is the peer's."""
  bert = {x: sizes[x] for x in realm_benchmark.ENCODER if x != 'vocab_size'}
  section = model_configs.BertSection(activation='gelu_tanh', **bert)
  beams_of = ('retriever_beam', 'reader_beam', 'row_length', 'question_length')
  return config_lib.Config(
    data_dir=f'{sizes["folder"]}/data',
    batch_size=1,
    num_steps=10_000,
    eval_every=1,
    eval_batches=0,
    checkpoint_every=1,
    corpus=corpus_lib.CorpusConfig(
      kind='jsonl', path=f'{sizes["folder"]}/texts.jsonl'
    ),
    tokens=model_configs.Tokens(num_processes=sizes['num_threads']),
    blocks=model_configs.Blocks(max_length=1 << 14, whole_documents=True),
    model=nn_config.VectorConfig(projection_size=sizes['vector_size']),
    embedder=section,
    encoder=section,
    lookup=reader_configs.Lookup(
      rule='wordpiece', **{x: sizes[x] for x in beams_of}
    ),
    reader=open_qa.SpanConfig(max_span_width=sizes['max_span_width']),
    optimizer=dataclasses.replace(
      realm_config.BERT_OPTIMIZER, learning_rate=1e-5
    ),
  )


def prepare(sizes: turns.Sizes) -> turns.Sizes:
  """Write texts.jsonl, vocab.txt and our data folder, a block for each text."""
  root = pathlib.Path(sizes['folder'])
  shutil.copy(bert_checkpoint.find_minilm() / 'vocab.txt', root)
  articles = corpus_lib.open_corpus('', kind='vital')
  words = [word for document in articles for word in document.text.split()]
  width = int(sizes['row_length'] * _WORDS_A_PIECE)
  rng = np.random.default_rng(0)
  with open(root / 'texts.jsonl', 'w') as f:
    for i in range(sizes['num_blocks']):
      start = rng.integers(0, len(words) - width)
      window = words[start : start + width]
      if rng.random() < _HOLDS_ANSWER:
        window.insert(rng.integers(0, width // 2), ANSWER)
      row = {'id': str(i), 'title': '', 'text': ' '.join(window)}
      f.write(json.dumps(row) + '\n')
  stages = prepare_lib.Prepare(stages='tokenizer,tokens,blocks')
  prepare_lib.prepare(_config(sizes), str(root), stages)
  return {'root': str(root)}


def _random_retriever(
  realm: nn_config.RealmConfig, num_blocks: int
) -> beams.BeamRetriever:
  """Dense retrieval from random vectors."""
  rng = np.random.default_rng(0)
  vectors = rng.standard_normal((num_blocks, realm.vector_size), np.float32)
  index = types.SimpleNamespace(searcher=searchers.ExactSearcher(vectors))
  version = types.SimpleNamespace(
    name='random', step=0, vectors=vectors, index=index
  )
  snapshot = types.SimpleNamespace(version=version)
  newest = beams.NewestIndex(
    realm, types.SimpleNamespace(serving=lambda _: snapshot)
  )
  dense = retriever_lib.Dense(None, newest)
  return beams.BeamRetriever(dense, newest=newest)


def build(side: str, sizes: turns.Sizes) -> turns.Steps:
  """Return our steps; they answer no questions after the first training."""
  del side
  config = _config(sizes)
  data = realm_data.DataFolder.of(config, '')
  model = reader_configs.reader_config(config, data.tokenizer.vocab_size)
  init = jax.jit(open_qa.random_params, static_argnums=1)
  params = nn.unbox(init(jax.random.key(0), model))
  trained = trained_models.of_params(config, data, params, 0)
  retriever = _random_retriever(model.realm, data.blocks.num_blocks)
  answerers = {
    size: block_reader.Answerer(
      trained,
      retriever,
      retriever_beam=sizes['reader_beam'],
      num_answers=1,
      batch_size=size,
    )
    for size in (1, sizes['batch'])
  }
  texts = itertools.cycle(sizes['questions'])
  selector = beams.make_selector(config, data, retriever)
  optimizer = optimizers.make_optimizer(config.optimizer, config.num_steps)
  state = jax.jit(optimizer.init)(params)
  loss = functools.partial(task_lib.bind_loss(config, model), train=True)
  numbers = itertools.count()

  @functools.partial(jax.jit, donate_argnums=(0, 1))
  def update(params, state, batch, key):
    metrics, grads = optimizers.value_and_grad(loss, params, batch, key)
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state, metrics

  def answer(count: int) -> turns.Numbers:
    asked = list(itertools.islice(texts, count))
    for found in answerers[count].answer(asked):
      found.answers[0].highlight()
    return {'items': count}

  def source(answers: str) -> question_rows.QuestionSource:
    questions = [
      questions_lib.Question(str(i), text, tuple(sizes[answers]))
      for i, text in enumerate(sizes['questions'])
    ]
    layout = reader_configs.reader_layout(config, data)
    return question_rows.QuestionSource(questions, data.tokenizer, layout)

  def train(source: question_rows.QuestionSource) -> turns.Numbers:
    nonlocal params, state
    answerers.clear()  # whose parameters the training replaces
    number = next(numbers)
    rows = source.rows(np.asarray([number % len(source)]), 1)
    batch = selector.select(params, rows, source)
    key = jax.random.key(number)
    params, state, metrics = update(params, state, batch, key)
    return {'has_answer': float(metrics['reader_has_answer'])}

  return {
    'answer': lambda: answer(1),
    'answer_batch': lambda: answer(sizes['batch']),
    'train': functools.partial(train, source('answers')),
    'train_nothing': functools.partial(train, source('no_answers')),
  }


TASKS = {
  'qa': turns.Task(
    build=build,
    sizes=SIZES,
    sides=('ours', 'transformers'),
    peers={'transformers': 'realm_worker'},
    prepare=prepare,
  )
}
