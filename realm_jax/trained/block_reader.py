# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Read retrieved blocks with a trained model, in batches on all local devices.

Lee et al. 2019 (ORQA), section 4.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float
import numpy as np

from realm_jax.data import examples, question_rows
from realm_jax.nn import open_qa
from realm_jax.objectives import reader_losses
from realm_jax.trained import answers, beams, model_configs, reader_configs
from retrieval import arguments
from retrieval.kernels import backend
from retrieval.nn import batch_encoder
from retrieval.questions import abstention, question_files

_MANY = 16  # blocks from which on a CPU has readers of three lengths


class Answerer:
  """Answers questions; yields each as `answers.Answered`."""

  def __init__(
    self,
    trained: model_configs.TrainedModel,
    retriever: beams.BeamRetriever,
    *,
    num_answers: int = 5,
    threshold: float | None = 0.0,
    calibration: abstention.Calibration | None = None,
    batch_size: int = 1,
  ):
    """Place the parameters; compile at the first question.

    Args:
      threshold: least confidence to answer with; None: the probability of "no
        answer in these documents".
      calibration: gives answers a probability.
      batch_size: rows at a time, filled up to a multiple of the devices.
    """
    self.trained, self.calibration = trained, calibration
    self._threshold = threshold
    self._layout = reader_configs.reader_layout(trained.config, trained.data)
    self._selector = beams.BeamSelector(
      trained.config, trained.data, retriever, search=False
    )
    devices = jax.local_devices()
    read = functools.partial(
      predict_spans, trained.model, num_answers=num_answers
    )
    self._read, everywhere, self._split = batch_encoder.compiled(
      read, devices, num_inputs=1
    )
    self._params = jax.device_put(trained.params, everywhere)
    self._batch_size = batch_size
    self._rows = -(-batch_size // len(devices)) * len(devices)

  def __call__(
    self,
    asked: Sequence[question_files.Question],
    progress: Callable[[int, int], None] | None = None,
  ) -> Iterator[answers.Answered]:
    """Yield the answers of each question, in their order."""
    source = question_rows.QuestionSource(
      asked, self.trained.data.tokenizer, self._layout
    )
    for low in range(0, len(source), self._batch_size):
      high = min(low + self._batch_size, len(source))
      rows = source.rows(np.arange(low, high), self._rows)
      batch = self._selector.select(self._params, rows, source)
      placed = jax.device_put(model_fields(batch), self._split)
      spans = jax.device_get(self._read(self._params, placed))
      for row in range(high - low):
        one = jax.tree.map(lambda x, row=row: x[row], (batch, spans))
        yield self._result(asked[low + row], *one)
      if progress:
        progress(high, len(source))

  def answer(self, texts: Sequence[str]) -> answers.Answers:
    """Answer questions that are texts, by `ask`; ValueError for an empty one."""
    texts = arguments.texts(texts, 'texts')
    for i, text in enumerate(texts):
      if not text.strip():
        raise ValueError(f'Question {i} is empty: expected text.')
    return answers.Answers(
      self.ask(
        [question_files.Question(f'{i}', x, ()) for i, x in enumerate(texts)]
      )
    )

  def ask(
    self,
    asked: Sequence[question_files.Question],
    progress: Callable[[int, int], None] | None = None,
  ) -> Iterator[answers.Answered]:
    """Yield the answers of questions, each read with a question mark at its end."""
    marked = []
    for x in asked:
      text = x.question.rstrip()
      if not text.endswith(('?', '？', '؟')):
        x = dataclasses.replace(x, question=f'{text}?')
      marked.append(x)
    for question, answered in zip(asked, self(marked, progress), strict=True):
      yield dataclasses.replace(answered, question=question)

  def _result(
    self, asked: question_files.Question, row: examples.Batch, out: 'Prediction'
  ) -> answers.Answered:
    """Return the answers of a question, from its rows of the batch and of `read`."""
    there = np.flatnonzero(out.spans.block >= 0)
    spans = jax.tree.map(lambda x: x[there], out.spans)
    scores, log_null = spans.score.astype(np.float64), -np.inf
    if self.trained.model.config.null_answer:
      log_null = float(out.log_null)
      shares = np.exp(scores + log_null)
    else:  # scipy.special would slow the start by a tenth
      likelihoods = np.exp(scores - scores.max(initial=-np.inf))
      shares = likelihoods / likelihoods.sum()
    null = float(np.exp(log_null))
    columns = (
      row['beam_ids'][spans.block],
      spans.block,
      spans.start,
      spans.width,
      row['reader_starts'][spans.block],
      scores,
      shares,
      out.correct[there],
    )
    blocks = self.trained.data.blocks
    rows = zip(*(x.tolist() for x in columns), strict=True)
    return answers.Answered(
      asked,
      tuple(answers.Answer(blocks, *values) for values in rows),
      row['beam_ids'].copy(),  # else it would keep the whole batch
      bool(row['reader_correct'].any()),
      blocks,
      answerable=1 - null,
      threshold=null if self._threshold is None else self._threshold,
      calibration=self.calibration,
    )


def model_fields(batch: examples.Batch) -> dict[str, Any]:
  """Return the fields that the model reads; cut the beam."""
  read = batch['reader_valid'].shape[1]
  beam = ('beam_vectors', 'beam_scores', 'beam_valid')
  return {
    name: x[:, :read] if name in beam else x
    for name, x in batch.items()
    if name in (*beam, 'question_ids', 'question_mask')
    or (name.startswith('reader_') and name != 'reader_starts')
  }


class Prediction(NamedTuple):
  """The best spans [B, n] of each question; `correct` marks gold ones."""

  spans: reader_losses.Spans
  correct: Bool[Array, 'B n']
  # log-probability of a null answer of score 0 beside all spans that were read
  log_null: Float[Array, ' B']


def predict_spans(
  model: open_qa.OpenQa,
  params: Any,
  batch: Mapping[str, jax.Array],
  *,
  num_answers: int = 1,
  read_at_once: int = 0,
) -> Prediction:
  """Answer a batch of `beams.BeamSelector`; spans come best first.

  read_at_once: number of blocks whose activations are held at a time; 0: one on a
  CPU, whose caches hold those of one block alone, else 16.
  """
  read_at_once = read_at_once or (1 if backend.is_cpu() else 16)
  retriever = model.apply({'params': params}, batch, method='beam_scores')
  questions, blocks, width, length = batch['reader_correct'].shape
  rows = {name: batch[f'reader_{name}'] for name in open_qa.ROWS}
  rows |= {
    'retriever': model.config.retriever_weight * retriever[:, :blocks],
    'valid': reader_losses.read_blocks(batch),
    'correct': batch['reader_correct'],
  }
  count = min(num_answers, width * length)
  parts = -(-questions * blocks // read_at_once)
  read_at_once = -(-questions * blocks // parts)  # as little padding as can be
  lengths = [length]  # of the readers; most rows are shorter than the longest
  if backend.is_cpu() and read_at_once == 1 and parts >= _MANY:
    lengths = [-(-length * share // 4) for share in (2, 3, 4)]
    lengths = [n for n in lengths if width * n >= count]
  readers = [functools.partial(_read, model, params, count, n) for n in lengths]

  def read(part):
    longest = part['mask'].sum(axis=-1).max()
    which = jnp.searchsorted(jnp.asarray(lengths), longest)
    return jax.lax.switch(which, readers, part)

  best = jax.lax.map(
    read, jax.tree.map(lambda x: _cut(x, parts, read_at_once), rows)
  )
  best, correct, total = jax.tree.map(
    lambda x: x.reshape(-1, *x.shape[2:])[: questions * blocks].reshape(
      questions, -1
    ),
    best,
  )
  best = best._replace(
    block=jnp.where(
      best.block < 0, -1, jnp.arange(blocks * count)[None] // count
    )
  )
  _, at = jax.lax.top_k(best.score, min(num_answers, blocks * count))
  spans, correct = jax.tree.map(
    lambda x: jnp.take_along_axis(x, at, axis=1), (best, correct)
  )
  everything = jnp.logaddexp(0.0, jax.nn.logsumexp(total, axis=-1))
  return Prediction(spans, correct, -everything)


def _cut(x: jax.Array, parts: int, rows: int) -> jax.Array:
  """Reshape [B, R, ...] to [parts, rows, ...], padded by zeros."""
  x = x.reshape(-1, *x.shape[2:])
  padding = ((0, parts * rows - len(x)), *((0, 0) for _ in x.shape[1:]))
  return jnp.pad(x, padding).reshape(parts, rows, *x.shape[1:])


def _read(
  model: open_qa.OpenQa,
  params: Any,
  count: int,
  length: int,
  rows: dict[str, jax.Array],
) -> tuple[reader_losses.Spans, jax.Array, jax.Array]:
  """Return the best spans of single blocks, [rows, count], and which are gold.

  Also returns logsumexp [rows] of the scores of all spans of a block.

  length: of the rows that is read; no row has a token after it.
  """
  cut = {name: rows[name][..., :length] for name in (*open_qa.ROWS, 'correct')}
  scores = model.apply(
    {'params': params}, *(cut[name] for name in open_qa.ROWS), method='read'
  )
  joint = reader_losses.add_retriever(
    rows['valid'][:, None], rows['retriever'][:, None], scores[:, None]
  )
  spans = reader_losses.best_spans(joint, count)
  number = jnp.arange(len(scores))[:, None]
  total = jax.nn.logsumexp(joint.reshape(len(joint), -1), axis=-1)
  return spans, cut['correct'][number, spans.width - 1, spans.start], total
