# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Losses of question answering, and the best spans of a question.

The losses of ORQA (Lee et al. 2019, section 5), with which REALM is fine-tuned
(Guu et al. 2020, section 4.2): the likelihood of the blocks with an answer in
the whole beam, and of the gold spans in the blocks that the reader reads.

Dimension key: B questions, C retriever beam, R reader beam, L reader row, W
widest span.
"""

from collections.abc import Mapping
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from realm_jax.nn import batches, open_qa
from retrieval.nn import means, objectives

Valid = Bool[Array, 'B R']  # blocks that exist
Scores = Float[Array, 'B R W L']  # of spans
# Spans of a block score more.
_ABSENT = open_qa.OUTSIDE / 2


class Spans(NamedTuple):
  """The best spans of each question, best first; each array is [B, n]."""

  # float32, with the block's retriever logit but for readers with a null answer
  score: jax.Array
  # int32. Number of the block in the reader's beam; -1: no further span.
  block: jax.Array
  start: jax.Array  # int32. Position in the row of the first token.
  width: jax.Array  # int32. Number of tokens, at least 1.


def marginal_loss(
  scores: Float[Array, 'B ...'],
  candidates: Bool[Array, '...'],
  right: Bool[Array, '...'],
) -> Float[Array, ' B']:
  """Negative log-likelihood [B], in nats, of any right entry of a row.

  Masks broadcast to `scores`. The loss is 0 without a gradient where no
  candidate is right.
  """
  scores, candidates, right = (
    jnp.broadcast_to(x, scores.shape).reshape(len(scores), -1)
    for x in (scores, candidates, right)
  )
  right &= candidates
  everything = jnp.where(candidates, scores, objectives.NEVER)
  loss = jax.nn.logsumexp(everything, axis=-1) - jax.nn.logsumexp(
    jnp.where(right, scores, objectives.NEVER), axis=-1
  )
  return jnp.where(right.any(axis=-1), loss, 0.0)


def full_loss(
  batch: Mapping[str, jax.Array], scores: Scores, null_answer: bool = False
) -> Float[Array, ' B']:
  """Negative log-likelihood in nats of a gold span, by joint `scores`.

  null_answer: whether a candidate of score 0 is right where no span is gold.
  """
  candidates = span_candidates(read_blocks(batch), *scores.shape[2:])
  right = batch['reader_correct'] & candidates
  if null_answer:
    scores, candidates, right = (
      x.reshape(len(x), -1) for x in (scores, candidates, right)
    )
    null = ((0, 0), (0, 1))
    scores = jnp.pad(scores, null)
    candidates = jnp.pad(candidates, null, constant_values=True)
    none = ~right.any(axis=-1, keepdims=True)
    right = jnp.concatenate([right, none], axis=-1)
  return marginal_loss(scores, candidates, right)


def read_blocks(batch: Mapping[str, jax.Array]) -> Valid:
  """Blocks of the reader's beam that exist."""
  valid = batch['reader_valid']
  return valid & batch['beam_valid'][:, : valid.shape[1]]


def span_candidates(
  valid: Valid, width: int, length: int
) -> Bool[Array, 'B R W L']:
  """Spans inside of a row of a valid block."""
  inside = jnp.arange(width)[:, None] + jnp.arange(length) < length
  return valid[:, :, None, None] & inside


def add_retriever(
  valid: Valid, retriever: Float[Array, 'B C'], spans: Scores
) -> Scores:
  """Joint scores [B, R, W, L] float32 of blocks and spans.

  -1e30 where there is no block, or the span leaves the row; about -1e4 for
  other spans outside of the block, which remain in the softmax, as released.
  """
  joint = spans + retriever[:, : spans.shape[1], None, None]
  there = span_candidates(valid, *spans.shape[2:])
  return jnp.where(there, joint, objectives.NEVER)


def best_spans(scores: Scores, n: int = 1) -> Spans:
  """The n best spans of all blocks of a question together, by `add_retriever`.

  Among spans of equal score the better retrieved, then the narrower, then the
  earlier comes first.
  """
  width, length = scores.shape[2:]
  score, at = jax.lax.top_k(scores.reshape(len(scores), -1), n)
  block, at = jnp.divmod(at.astype(jnp.int32), width * length)
  wider, start = jnp.divmod(at, length)
  return Spans(score, jnp.where(score > _ABSENT, block, -1), start, wider + 1)


def loss(
  model: open_qa.OpenQa,
  params: Any,
  batch: Mapping[str, jax.Array],
  key: jax.Array,
  train: bool,
  *,
  early_weight: float = 1.0,
) -> tuple[means.Mean, dict[str, means.Mean]]:
  """Early loss and loss of spans; both train the question's embedder.

  The reader rests if the batch has no gold span, when its gradient would be 0,
  unless it has a null answer. With one the span loss does not reach the retriever.

  Args:
    batch: a beam of blocks for every question and rows of the first R blocks,
      as `beams.BeamSelector` makes it; int32 or bool:
        question_ids, question_mask: [B, Q] `[CLS] question [SEP]`.
        row_valid: [B] False for padding.
        beam_vectors: [B, C, d] float32 or bfloat16, constants.
        beam_valid, beam_has_answer: [B, C].
        reader_ids, reader_mask, reader_types, reader_block_mask: [B, R, L]
          rows of `data.reader_rows`; reader_valid: [B, R].
        reader_correct: [B, R, W, L] the gold spans, as `SpanReader` counts.
        block_ids, block_mask, block_types: [B, R, T], optional: `[CLS] title
          [SEP] body [SEP]`, to train the block embedder.

  Returns:
    The mean over questions in nats, and metrics over questions.
  """

  def apply(params, method):
    return batches.apply(
      model, params, batch, train=train, key=key, method=method
    )

  shape = batch['reader_correct'].shape
  rows = batch['row_valid'][:, None, None, None]
  there = span_candidates(read_blocks(batch), *shape[2:])
  right = batch['reader_correct'] & there & rows
  read = functools.partial(apply, method='read_beam')
  if model.config.null_answer:
    spans = read(params)
  else:
    rest = jnp.zeros(shape, jnp.float32)
    spans = jax.lax.cond(right.any(), read, lambda _: rest, params)
  retriever = apply(params, 'beam_scores')
  weight = model.config.retriever_weight
  scores = add_retriever(read_blocks(batch), weight * retriever, spans)

  def mean(x):
    x = x.reshape(len(x), -1).any(axis=-1) if x.dtype == bool else x
    return means.of(x, batch['row_valid'])

  beam = batch['beam_valid'], batch['beam_has_answer']
  early = mean(marginal_loss(retriever, *beam))
  full = mean(full_loss(batch, scores, model.config.null_answer))
  flat = scores.reshape(len(scores), -1)
  best = flat.argmax(axis=-1, keepdims=True)
  right = right.reshape(flat.shape)
  return full + early_weight * early, {
    'early_loss': early,
    'full_loss': full,
    'beam_has_answer': mean(beam[0] & beam[1]),
    'reader_has_answer': mean(right),
    'exact_match': mean(jnp.take_along_axis(right, best, axis=-1)),
  }
