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
from experiments.realm import config as realm_config
from realm_jax.data import question_rows, reader_rows
from realm_jax.nn import config as config_lib, open_qa
from realm_jax.objectives import reader_losses
from realm_jax.serving import answers as answers_lib, beams, block_reader
from retrieval import searchers, tokenization
from retrieval.nn import bert_checkpoint
from retrieval.questions import answer_search, questions as questions_lib
from retrieval.search import retriever as retriever_lib
from retrieval.text import (
  blocks as blocks_lib,
  corpus as corpus_lib,
  tokens as tokens_lib,
)

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
_BOTH = 'ours', 'transformers'
_WORDS_A_PIECE = 0.9  # at most; English has fewer words than wordpieces
_HOLDS_ANSWER = 0.75


def prepare(sizes: turns.Sizes) -> turns.Sizes:
  """Write texts.jsonl, vocab.txt and the store of blocks, one a text."""
  root = pathlib.Path(sizes['folder'])
  vocab = shutil.copyfile(
    bert_checkpoint.find_minilm() / 'vocab.txt', root / 'vocab.txt'
  )
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
  tokens = tokens_lib.build_token_store(
    root / 'tokens',
    corpus_lib.open_corpus(str(root / 'texts.jsonl')),
    vocab,
    with_title=False,
    with_text=True,
    num_processes=sizes['num_threads'],
  )
  blocks_lib.build_block_store(
    root / 'blocks',
    tokens,
    vocab,
    max_length=1 << 14,
    whole_documents=True,
    num_processes=sizes['num_threads'],
  )
  return {'root': str(root)}


def _random_retriever(
  realm: config_lib.RealmConfig, num_blocks: int
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
  """Return our steps; training changes the parameters of all of them."""
  del side
  root = pathlib.Path(sizes['root'])
  bert, width = realm_benchmark.bert_config(sizes), sizes['max_span_width']
  realm = config_lib.RealmConfig(
    embedder=bert, encoder=bert, projection_size=sizes['vector_size']
  )
  config = open_qa.OpenQaConfig(realm=realm, max_span_width=width)
  model = open_qa.OpenQa(config)
  blocks = blocks_lib.BlockStore(root / 'blocks')
  tokenizer = tokenization.load_tokenizer(root / 'vocab.txt')
  layout = reader_rows.ReaderLayout(
    row_length=sizes['row_length'],
    question_length=sizes['question_length'],
    max_span_width=width,
    cls_id=tokenizer.cls_id,
    sep_id=tokenizer.sep_id,
    pad_id=tokenizer.pad_id,
  )
  retriever = _random_retriever(realm, blocks.num_blocks)
  # The peer's rule.
  rule = answer_search.QuestionSearch(blocks, 'wordpiece', tokenizer)
  selectors = {
    size: beams.BeamSelector(
      layout,
      blocks,
      retriever,
      search=rule,
      retriever_beam=size,
      reader_beam=sizes['reader_beam'],
    )
    for size in (sizes['reader_beam'], sizes['retriever_beam'])
  }
  sources = {}
  for name in ('answers', 'no_answers', 'asked'):
    questions = [
      questions_lib.Question(str(i), text, tuple(sizes.get(name, ())))
      for i, text in enumerate(sizes['questions'])
    ]
    sources[name] = question_rows.QuestionSource(questions, tokenizer, layout)
  optimizer = optimizers.make_optimizer(
    dataclasses.replace(realm_config.BERT_OPTIMIZER, learning_rate=1e-5),
    10_000,
  )
  init = jax.jit(open_qa.random_params, static_argnums=1)
  params = nn.unbox(init(jax.random.key(0), config))
  state = jax.jit(optimizer.init)(params)
  loss = functools.partial(reader_losses.loss, model)
  predict = jax.jit(functools.partial(block_reader.predict_spans, model))
  numbers = itertools.count()

  @functools.partial(jax.jit, donate_argnums=(0, 1))
  def update(params, state, batch, key):
    (_, metrics), grads = jax.value_and_grad(loss, has_aux=True)(
      params, batch, key, True
    )
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state, metrics

  def select(beam: int, name: str, count: int):
    """Return the batch of the next questions."""
    source = sources[name]
    chosen = [next(numbers) % len(source) for _ in range(count)]
    rows = source.rows(np.asarray(chosen), count)
    return selectors[beam].select(params, rows, source)

  def answer(count: int) -> turns.Numbers:
    batch = select(sizes['reader_beam'], 'asked', count)
    fields = {k: v for k, v in batch.items() if k != 'reader_starts'}
    spans = jax.device_get(predict(params, fields)).spans
    questions, ranks = np.arange(count), spans.block[:, 0]
    columns = (
      batch['beam_ids'][questions, ranks],
      spans.start[:, 0],
      spans.width[:, 0],
      batch['reader_starts'][questions, ranks],
    )
    for row in zip(*(x.tolist() for x in columns), strict=True):
      answers_lib.highlight(blocks, *row)
    return {'items': count}

  def train(answers: str) -> turns.Numbers:
    nonlocal params, state
    batch = select(sizes['retriever_beam'], answers, 1)
    key = jax.random.key(next(numbers))
    params, state, metrics = update(params, state, batch, key)
    return {'has_answer': float(metrics['reader_has_answer'])}

  return {
    'answer': lambda: answer(1),
    'answer_batch': lambda: answer(sizes['batch']),
    'train': lambda: train('answers'),
    'train_nothing': lambda: train('no_answers'),
  }


TASKS = {
  'qa': turns.Task(
    build=build,
    sizes=SIZES,
    # The peer takes one question at a time.
    steps=lambda _: {
      'answer': _BOTH,
      'train': _BOTH,
      'train_nothing': _BOTH,
      'answer_batch': ('ours',),
    },
    peers={'transformers': 'realm_worker'},
    prepare=prepare,
  )
}
