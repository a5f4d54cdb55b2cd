# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Our side of the benchmark `qa`: answering and fine-tuning, in timed parts."""

from collections.abc import Callable
import functools
import itertools
import pathlib
import time
import types
from typing import Any

from flax import linen as nn
import jax
import numpy as np
import optax

from experiments.benchmarks import (
  qa_data,
  realm as realm_benchmark,
  turns,
)
from experiments.engine import optimizers
from realm_jax.data import question_rows, reader_rows
from realm_jax.nn import config as config_lib, open_qa
from realm_jax.objectives import reader_losses
from realm_jax.serving import answer_text, beam_selector, beams, predict
from retrieval import searchers, tokenization
from retrieval.questions import answer_search, questions as questions_lib


def make_model(sizes: dict[str, Any]) -> open_qa.OpenQa:
  """Return a model of these sizes with REALM's settings."""
  config = realm_benchmark.bert_config(sizes)
  realm = config_lib.RealmConfig(
    embedder=config, encoder=config, projection_size=sizes['vector_size']
  )
  width = sizes['max_span_width']
  return open_qa.OpenQa(open_qa.OpenQaConfig(realm=realm, max_span_width=width))


def _random_retriever(model: open_qa.OpenQa, num_blocks: int) -> turns.Timed:
  """Dense retrieval from random vectors."""
  realm = model.config.realm
  rng = np.random.default_rng(0)
  vectors = rng.standard_normal((num_blocks, realm.vector_size), np.float32)
  searcher = searchers.ExactSearcher(vectors)
  index = types.SimpleNamespace(searcher=searcher)
  version = types.SimpleNamespace(name='random', vectors=vectors, index=index)
  snapshot = types.SimpleNamespace(step=0, version=version)
  serving = types.SimpleNamespace(serving=lambda _: snapshot)
  return turns.Timed(beams.DenseRetriever(realm, serving))


class Steps:
  """The timed steps; training changes their parameters."""

  def __init__(self, sizes: dict[str, Any]):
    """Open the data; the first step compiles.

    Args:
      sizes: SIZES of the benchmark `qa`, with root, questions and answers.
    """
    root = pathlib.Path(sizes['root'])
    self._model = make_model(sizes)
    self._blocks = qa_data.open_blocks(root)
    tokenizer = tokenization.load_tokenizer(root / 'vocab.txt')
    self._layout = reader_rows.ReaderLayout(
      row_length=sizes['row_length'],
      question_length=sizes['question_length'],
      max_span_width=sizes['max_span_width'],
      cls_id=tokenizer.cls_id,
      sep_id=tokenizer.sep_id,
      pad_id=tokenizer.pad_id,
    )
    self._retriever = _random_retriever(self._model, self._blocks.num_blocks)
    lookup = functools.partial(
      beam_selector.BeamSelector,
      self._layout,
      self._blocks,
      self._retriever,
      # The peer's rule.
      search=answer_search.QuestionSearch(self._blocks, 'wordpiece', tokenizer),
      reader_beam=sizes['reader_beam'],
    )
    self._find_blocks = lookup(retriever_beam=sizes['reader_beam'])
    self._find_beam = lookup(retriever_beam=sizes['retriever_beam'])
    wanted = {name: sizes[name] for name in ('answers', 'no_answers')}
    self._sources = {
      name: question_rows.QuestionSource(
        [
          questions_lib.Question(str(i), text, tuple(answers))
          for i, text in enumerate(sizes['questions'])
        ],
        tokenizer,
        self._layout,
      )
      for name, answers in (wanted | {'asked': ()}).items()
    }
    self._next = itertools.count()
    self._start(sizes)

  def _start(self, sizes: dict[str, Any]) -> None:
    config = optimizers.OptimizerConfig(
      name='bert_adam',
      schedule='linear',
      learning_rate=1e-5,
      decay_mask='bert',
      warmup_steps=optimizers.TENTH,
      weight_decay=0.01,
      b2=0.999,
      eps=1e-6,
    )
    optimizer = optimizers.make_optimizer(config, 10_000)
    init = jax.jit(open_qa.random_params, static_argnums=1)
    self._params = nn.unbox(init(jax.random.key(0), self._model.config))
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

  def _rows(self, source: question_rows.QuestionSource, count: int):
    numbers = [next(self._next) % len(source) for _ in range(count)]
    return source.rows(np.asarray(numbers), count)

  def answer(self, count: int) -> dict[str, float]:
    """Answer questions; return the seconds of each part."""
    self._retriever.sec, start = 0.0, time.perf_counter()
    source = self._sources['asked']
    batch = self._find_blocks.select(
      self._params, self._rows(source, count), source
    )
    found_at = time.perf_counter()
    fields = {k: v for k, v in batch.items() if k != 'reader_starts'}
    spans = jax.device_get(self._predict(self._params, fields)).spans
    device_at = time.perf_counter()
    questions = np.arange(count)
    ranks = spans.block[:, 0]
    answer_text.answer_texts(
      self._blocks,
      batch['beam_ids'][questions, ranks],
      spans.start[:, 0],
      spans.width[:, 0],
      batch['reader_starts'][questions, ranks],
    )
    host = found_at - start - self._retriever.sec
    return {
      'find_sec': self._retriever.sec,
      'match_sec': host + time.perf_counter() - device_at,
      'device_sec': device_at - found_at,
    }

  def train(self, answers: str) -> dict[str, float]:
    """Fine-tune for one step; return the seconds of each part.

    Args:
      answers: source of the gold answers: 'answers' or 'no_answers'.
    """
    self._retriever.sec, start = 0.0, time.perf_counter()
    source = self._sources[answers]
    batch = self._find_beam.select(self._params, self._rows(source, 1), source)
    found_at = time.perf_counter()
    key = jax.random.key(next(self._next))
    self._params, self._state, metrics = self._train(
      self._params, self._state, batch, key
    )
    jax.block_until_ready(self._params)
    end = time.perf_counter()
    return {
      'find_sec': self._retriever.sec,
      'match_sec': found_at - start - self._retriever.sec,
      'device_sec': end - found_at,
      'has_answer': float(metrics['reader_has_answer']),
    }


def build(sizes: dict[str, Any]) -> dict[str, Callable[[], dict[str, float]]]:
  """Return our steps, functions that return the seconds of their parts."""
  steps = Steps(sizes)
  return {
    'answer': lambda: steps.answer(1),
    'answer_batch': lambda: steps.answer(sizes['batch']),
    'train': lambda: steps.train('answers'),
    'train_nothing': lambda: steps.train('no_answers'),
  }
