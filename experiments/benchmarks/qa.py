# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Question answering against transformers 4.40.2, as RealmForOpenQA does it.

Both sides answer questions from the same texts and fine-tune on one question at a time
with a retriever beam of 5,000; weights are random. Texts are windows of a real corpus
that fill the reader's rows; three of four hold the answer. `train` has a gold span in
the blocks that are read; `train_nothing` has no answer in any block, and our reader is
skipped.
"""

from collections.abc import Callable
import functools
import itertools
import json
import pathlib
import shutil
import types
from typing import Any

from flax import linen as nn
import jax
import numpy as np
import optax

from experiments.benchmarks import comparison, realm as realm_benchmark
from experiments.engine import optimizers
from realm_jax.data import question_rows, reader_rows
from realm_jax.nn import config as config_lib, open_qa
from realm_jax.objectives import reader_losses
from realm_jax.serving import answer_text, beams, predict
from retrieval import searchers, tokenization
from retrieval.nn import bert_checkpoint
from retrieval.questions import answer_search, questions as questions_lib
from retrieval.search import retriever as retriever_lib
from retrieval.store import store
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
  'corpus': '',  # JSON lines with texts; '' is the packaged articles
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


def _write_texts(path: pathlib.Path, sizes: dict[str, Any]) -> None:
  """Write windows of a corpus as JSON lines, three of four with the answer."""
  given = {} if sizes['corpus'] else {'kind': 'vital'}
  corpus = corpus_lib.open_corpus(sizes['corpus'], **given)
  words = [word for document in corpus for word in document.text.split()]
  width, rng = (
    int(sizes['row_length'] * _WORDS_A_PIECE),
    np.random.default_rng(0),
  )
  with store.open_atomically(path, 'w') as f:
    for i in range(sizes['num_blocks']):
      start = rng.integers(0, max(len(words) - width, 1))
      window = words[start : start + width]
      if rng.random() < _HOLDS_ANSWER:
        window.insert(rng.integers(0, width // 2), ANSWER)
      row = {'id': str(i), 'title': '', 'text': ' '.join(window)}
      f.write(json.dumps(row) + '\n')


def prepare(sizes: dict[str, Any]) -> dict[str, Any]:
  """Write texts.jsonl, vocab.txt and the store of blocks, one a text."""
  root, cores = pathlib.Path(sizes['folder']), sizes['num_threads']
  vocab = shutil.copyfile(
    bert_checkpoint.find_minilm() / 'vocab.txt', root / 'vocab.txt'
  )
  _write_texts(root / 'texts.jsonl', sizes)
  tokens = tokens_lib.build_token_store(
    root / 'tokens',
    corpus_lib.open_corpus(str(root / 'texts.jsonl')),
    vocab,
    with_title=False,
    with_text=True,
    num_processes=cores,
  )
  blocks_lib.build_block_store(
    root / 'blocks',
    tokens,
    vocab,
    max_length=1 << 14,
    whole_documents=True,
    num_processes=cores,
  )
  return {'root': str(root)}


def _random_retriever(
  realm: config_lib.RealmConfig, num_blocks: int
) -> beams.BeamRetriever:
  """Dense retrieval from random vectors."""
  rng = np.random.default_rng(0)
  vectors = rng.standard_normal((num_blocks, realm.vector_size), np.float32)
  index = types.SimpleNamespace(searcher=searchers.ExactSearcher(vectors))
  version = types.SimpleNamespace(name='random', vectors=vectors, index=index)
  snapshot = types.SimpleNamespace(step=0, version=version)
  serving = types.SimpleNamespace(serving=lambda _: snapshot)
  newest = beams.NewestIndex(realm, serving)
  dense = retriever_lib.Dense(None, newest)
  return beams.BeamRetriever(dense, newest=newest)


class _Steps:
  """The timed steps; training changes their parameters."""

  def __init__(self, sizes: dict[str, Any]):
    root = pathlib.Path(sizes['root'])
    bert, width = realm_benchmark.bert_config(sizes), sizes['max_span_width']
    realm = config_lib.RealmConfig(
      embedder=bert, encoder=bert, projection_size=sizes['vector_size']
    )
    config = open_qa.OpenQaConfig(realm=realm, max_span_width=width)
    self._model = open_qa.OpenQa(config)
    self._blocks = blocks_lib.BlockStore(root / 'blocks')
    tokenizer = tokenization.load_tokenizer(root / 'vocab.txt')
    layout = reader_rows.ReaderLayout(
      row_length=sizes['row_length'],
      question_length=sizes['question_length'],
      max_span_width=width,
      cls_id=tokenizer.cls_id,
      sep_id=tokenizer.sep_id,
      pad_id=tokenizer.pad_id,
    )
    lookup = functools.partial(
      beams.BeamSelector,
      layout,
      self._blocks,
      _random_retriever(realm, self._blocks.num_blocks),
      # The peer's rule.
      search=answer_search.QuestionSearch(self._blocks, 'wordpiece', tokenizer),
      reader_beam=sizes['reader_beam'],
    )
    self._find_blocks = lookup(retriever_beam=sizes['reader_beam'])
    self._find_beam = lookup(retriever_beam=sizes['retriever_beam'])
    self._sources = {}
    for name in ('answers', 'no_answers', 'asked'):
      questions = [
        questions_lib.Question(str(i), text, tuple(sizes.get(name, ())))
        for i, text in enumerate(sizes['questions'])
      ]
      source = question_rows.QuestionSource(questions, tokenizer, layout)
      self._sources[name] = source
    self._next = itertools.count()
    optimizer = optimizers.make_optimizer(
      optimizers.OptimizerConfig(
        name='bert_adam',
        schedule='linear',
        learning_rate=1e-5,
        decay_mask='bert',
        warmup_steps=optimizers.TENTH,
        weight_decay=0.01,
        b2=0.999,
        eps=1e-6,
      ),
      10_000,
    )
    init = jax.jit(open_qa.random_params, static_argnums=1)
    self._params = nn.unbox(init(jax.random.key(0), config))
    self._state = jax.jit(optimizer.init)(self._params)
    loss = functools.partial(reader_losses.loss, self._model)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def train(params, state, batch, key):
      (_, metrics), grads = jax.value_and_grad(loss, has_aux=True)(
        params, batch, key, True
      )
      updates, state = optimizer.update(grads, state, params)
      return optax.apply_updates(params, updates), state, metrics

    self._train = train
    self._predict = jax.jit(functools.partial(predict.predict, self._model))

  def _select(self, find, name: str, count: int):
    """Return the batch of the next questions."""
    source = self._sources[name]
    numbers = [next(self._next) % len(source) for _ in range(count)]
    rows = source.rows(np.asarray(numbers), count)
    return find.select(self._params, rows, source)

  def answer(self, count: int) -> dict[str, float]:
    """Answer questions."""
    batch = self._select(self._find_blocks, 'asked', count)
    fields = {k: v for k, v in batch.items() if k != 'reader_starts'}
    spans = jax.device_get(self._predict(self._params, fields)).spans
    questions, ranks = np.arange(count), spans.block[:, 0]
    answer_text.answer_texts(
      self._blocks,
      batch['beam_ids'][questions, ranks],
      spans.start[:, 0],
      spans.width[:, 0],
      batch['reader_starts'][questions, ranks],
    )
    return {'items': count}

  def train(self, answers: str) -> dict[str, float]:
    """Fine-tune for one step on 'answers' or 'no_answers'."""
    batch = self._select(self._find_beam, answers, 1)
    key = jax.random.key(next(self._next))
    self._params, self._state, metrics = self._train(
      self._params, self._state, batch, key
    )
    return {'has_answer': float(metrics['reader_has_answer'])}


def build(side: str, sizes: dict[str, Any]) -> dict[str, Callable]:
  """Return our steps."""
  del side
  steps = _Steps(sizes)
  return {
    'answer': lambda: steps.answer(1),
    'answer_batch': lambda: steps.answer(sizes['batch']),
    'train': lambda: steps.train('answers'),
    'train_nothing': lambda: steps.train('no_answers'),
  }


TASKS = {
  'qa': comparison.Task(
    build=build,
    sizes=SIZES,
    # The peer takes one question at a time.
    steps=lambda _: (
      dict.fromkeys(
        ('answer', 'train', 'train_nothing'), ('ours', 'transformers')
      )
      | {'answer_batch': ('ours',)}
    ),
    peers={'transformers': 'realm_worker'},
    prepare=prepare,
  )
}
