# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Answers of many blocks: read some at a time, remember the best spans.

Lee et al. 2019 (ORQA), section 4; Balachandran et al. 2021.
"""

from collections.abc import Mapping
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from realm_jax.nn import open_qa
from realm_jax.objectives import reader_losses
from retrieval.kernels import backend

_MANY = 16  # blocks from which on a CPU has readers of three lengths


class Prediction(NamedTuple):
  """The best spans [B, n] of each question; `correct` marks gold ones."""

  spans: reader_losses.Spans
  correct: Bool[Array, 'B n']


def predict(
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
    'retriever': retriever[:, :blocks],
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

  found = jax.lax.map(
    read, jax.tree.map(lambda x: _cut(x, parts, read_at_once), rows)
  )
  found, correct = jax.tree.map(
    lambda x: x.reshape(-1, count)[: questions * blocks].reshape(questions, -1),
    found,
  )
  found = found._replace(
    block=jnp.where(
      found.block < 0, -1, jnp.arange(blocks * count)[None] // count
    )
  )
  score, at = jax.lax.top_k(found.score, min(num_answers, blocks * count))

  def take(x):
    return jnp.take_along_axis(x, at, axis=1)

  spans = reader_losses.Spans(
    score, take(found.block), take(found.start), take(found.width)
  )
  return Prediction(spans, take(correct))


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
) -> tuple[reader_losses.Spans, jax.Array]:
  """Return the best spans of single blocks: [rows, count] each.

  length: of the rows that is read; no row has a token after it.
  """
  cut = {name: rows[name][..., :length] for name in (*open_qa.ROWS, 'correct')}
  scores = model.apply(
    {'params': params}, *(cut[name] for name in open_qa.ROWS), method='read'
  )
  one = {
    'reader_ids': cut['ids'][:, None],
    'reader_valid': rows['valid'][:, None],
    'beam_valid': rows['valid'][:, None],
  }
  joint = reader_losses.add_retriever(
    one, rows['retriever'][:, None], scores[:, None]
  )
  spans = reader_losses.best_spans(joint, count)
  number = jnp.arange(len(scores))[:, None]
  return spans, cut['correct'][number, spans.width - 1, spans.start]
