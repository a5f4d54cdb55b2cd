# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""How retriever and reader learn to answer, and what they answer.

The losses of ORQA (Lee et al. 2019, section 5), with which REALM is fine-tuned (Guu
et al. 2020, section 4.2): the likelihood of what is right among everything that was
retrieved, of blocks in the whole beam and of spans in the blocks that are read.

Dimension key: B questions, C retriever beam, R reader beam, L reader row, W
widest span.
"""

from collections.abc import Mapping
import functools
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array
from jaxtyping import Bool
from jaxtyping import Float

from realm_jax.nn import open_qa
from realm_jax.objectives import objectives

# The score of what is no candidate; finite, so no difference of two is NaN.
_NEVER = -1e9
# What scores less is no span of a block.
_ABSENT = open_qa.OUTSIDE / 2


class Spans(NamedTuple):
  """The best spans of each question, best first.

  Attributes:
    score: [B, n] float32. With the block's retriever logit.
    block: [B, n] int32. Which block of the reader's beam; -1 where the question
      has no further span.
    start: [B, n] int32. Position in the row of the first token.
    width: [B, n] int32. Number of tokens, at least 1.
  """

  score: jax.Array
  block: jax.Array
  start: jax.Array
  width: jax.Array


def marginal_loss(
  scores: Float[Array, 'B K'],
  candidates: Bool[Array, 'B K'],
  right: Bool[Array, 'B K'],
) -> Float[Array, ' B']:
  """-log p(any of the right ones), by a softmax over the candidates.

  Args:
    scores: [B, K] float32. Finite.
    candidates: [B, K] bool. What the softmax is over.
    right: [B, K] bool. What is right, where it is a candidate.

  Returns:
    [B] float32, in nats; 0 without a gradient where no candidate is right.
  """
  right &= candidates
  everything = jnp.where(candidates, scores, _NEVER)
  loss = jax.nn.logsumexp(everything, axis=-1) - jax.nn.logsumexp(
    jnp.where(right, scores, _NEVER), axis=-1
  )
  return jnp.where(right.any(axis=-1), loss, 0.0)


def early_loss(
  batch: Mapping[str, jax.Array], scores: Float[Array, 'B C']
) -> Float[Array, ' B']:
  """-log p(a block with an answer), over the whole beam.

  Args:
    batch: see `loss`.
    scores: [B, C] retriever logits.

  Returns:
    [B] float32, in nats; 0 where no block has an answer.
  """
  return marginal_loss(scores, batch['beam_valid'], batch['beam_has_answer'])


def full_loss(
  batch: Mapping[str, jax.Array], scores: Float[Array, 'B R W L']
) -> Float[Array, ' B']:
  """-log p(a gold span), over all spans of all blocks that are read.

  Args:
    batch: see `loss`.
    scores: [B, R, W, L] of spans, see `add_retriever`.

  Returns:
    [B] float32, in nats; 0 where no span is gold.
  """
  flat = (len(scores), -1)
  return marginal_loss(
    scores.reshape(flat),
    span_candidates(batch, scores.shape[2]).reshape(flat),
    batch['reader_correct'].reshape(flat),
  )


def read_blocks(batch: Mapping[str, jax.Array]) -> Bool[Array, 'B R']:
  """Which blocks of the reader's beam there are."""
  valid = batch['reader_valid']
  return valid & batch['beam_valid'][:, : valid.shape[1]]


def span_candidates(
  batch: Mapping[str, jax.Array], width: int
) -> Bool[Array, 'B R W L']:
  """The spans that do not leave the row, of blocks that there are."""
  length = batch['reader_ids'].shape[-1]
  inside = jnp.arange(width)[:, None] + jnp.arange(length) < length
  return read_blocks(batch)[:, :, None, None] & inside


def add_retriever(
  batch: Mapping[str, jax.Array],
  retriever: Float[Array, 'B C'],
  spans: Float[Array, 'B R W L'],
) -> Float[Array, 'B R W L']:
  """Joint scores of blocks and spans.

  Args:
    batch: see `loss`.
    retriever: [B, C] logits of the beam.
    spans: [B, R, W, L] scores of the reader.

  Returns:
    [B, R, W, L] float32; -1e9 where there is no block, or the span leaves the
    row; about -1e4 where it is not of the block's tokens, which are in the
    softmax, as released.
  """
  joint = spans + retriever[:, : spans.shape[1], None, None]
  return jnp.where(span_candidates(batch, spans.shape[2]), joint, _NEVER)


def best_spans(scores: Float[Array, 'B R W L'], n: int = 1) -> Spans:
  """The n spans that score best in all blocks of a question together.

  The first is that of the released code, which takes the best block by its best
  span and the best span by its best block. Of equal ones the better retrieved, then
  the narrower, then the earlier goes first.

  Args:
    scores: [B, R, W, L] see `add_retriever`.
    n: how many.

  Returns:
    [B, n] each.

  Raises:
    ValueError: if there are not as many.
  """
  _, blocks, width, length = scores.shape
  if not 1 <= n <= blocks * width * length:
    raise ValueError(
      f'The {n} best spans of {blocks} blocks with {width} x {length} each: '
      f'expected 1 to {blocks * width * length}.'
    )
  score, at = jax.lax.top_k(scores.reshape(len(scores), -1), n)
  block, at = jnp.divmod(at.astype(jnp.int32), width * length)
  wider, start = jnp.divmod(at, length)
  return Spans(score, jnp.where(score > _ABSENT, block, -1), start, wider + 1)


def _check(model: open_qa.OpenQa, batch: Mapping[str, jax.Array]) -> None:
  expected = (
    *batch['reader_ids'].shape[:2],
    model.config.max_span_width,
    batch['reader_ids'].shape[-1],
  )
  if batch['reader_correct'].shape != expected:
    raise ValueError(
      f'reader_correct has shape {batch["reader_correct"].shape}; expected '
      f'{expected}: questions, blocks, widths, tokens.'
    )


def loss(
  model: open_qa.OpenQa,
  params: Any,
  batch: Mapping[str, jax.Array],
  key: jax.Array,
  train: bool,
  *,
  early_weight: float = 1.0,
  skip_unanswerable: bool = True,
) -> tuple[Float[Array, ''], dict[str, Float[Array, '']]]:
  """The early loss and the loss of spans: both train the question's embedder.

  Args:
    model: retriever and reader.
    params: its parameters.
    batch: a beam of blocks for every question and rows of the first of them,
      int32 or bool:
        question_ids, question_mask: [B, Q] `[CLS] question [SEP]`.
        row_valid: [B] False at what only fills the batch.
        beam_vectors: [B, C, d] float32 or bfloat16, constants.
        beam_valid, beam_has_answer: [B, C].
        reader_ids, reader_mask, reader_types, reader_block_mask: [B, R, L]
          `[CLS] question [SEP] block [SEP]` of the first R of the beam.
        reader_valid: [B, R].
        reader_correct: [B, R, W, L] the gold spans, as `SpanReader` counts them.
        block_ids, block_mask, block_types: [B, R, T], only to train the block
          side: `[CLS] title [SEP] body [SEP]`, embedded with a gradient.
    key: of dropout.
    train: whether dropout acts.
    early_weight: times the early loss.
    skip_unanswerable: whether the reader rests where the batch has no gold span,
      at which its loss and gradient are 0.

  Returns:
    The mean over questions in nats, and metrics, means likewise: `early_loss`
    and `full_loss`; `beam_has_answer` and `reader_has_answer`, shares of the
    questions with a block with an answer and with a gold span; `exact_match`, the
    share whose best span is gold; and `weight`, the number of questions.

  Raises:
    ValueError: for shapes that contradict each other.
  """
  _check(model, batch)
  rngs = {'dropout': key} if train else None

  def apply(params, method):
    return model.apply(
      {'params': params}, batch, train=train, method=method, rngs=rngs
    )

  shape = batch['reader_correct'].shape
  rows = batch['row_valid'][:, None, None, None]
  right = batch['reader_correct'] & span_candidates(batch, shape[2]) & rows
  read = functools.partial(apply, method='read_beam')
  if skip_unanswerable:
    spans = jax.lax.cond(
      right.any(), read, lambda _: jnp.zeros(shape, jnp.float32), params
    )
  else:
    spans = read(params)
  retriever = apply(params, 'beam_scores')
  scores = add_retriever(batch, retriever, spans)
  metrics = _metrics(batch, scores, right)
  early, full = early_loss(batch, retriever), full_loss(batch, scores)
  mean = functools.partial(objectives.masked_mean, mask=batch['row_valid'])
  metrics |= {'early_loss': mean(early), 'full_loss': mean(full)}
  return mean(early_weight * early + full), metrics


def _metrics(
  batch: Mapping[str, jax.Array], scores: jax.Array, right: jax.Array
) -> dict[str, jax.Array]:
  """What of the metrics of `loss` is no loss; [B, R, W, L] scores and gold."""
  scores, right = (x.reshape(len(x), -1) for x in (scores, right))
  best = scores.argmax(axis=-1, keepdims=True)
  shares = {
    'beam_has_answer': batch['beam_has_answer'] & batch['beam_valid'],
    'reader_has_answer': right,
    'exact_match': jnp.take_along_axis(right, best, axis=-1),
  }
  metrics = {
    name: objectives.masked_mean(
      x.any(axis=-1).astype(jnp.float32), batch['row_valid']
    )
    for name, x in shares.items()
  }
  return metrics | {'weight': batch['row_valid'].sum(dtype=jnp.float32)}
