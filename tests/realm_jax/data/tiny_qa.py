# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Small question answerers, their parameters and batches."""

import functools

from flax import linen as nn
import jax
import numpy as np

from realm_jax.data import reader_rows
from realm_jax.nn import open_qa
from realm_jax.objectives import reader_losses
from tests.realm_jax.nn import tiny

B, C, R, L, W, Q, T, D = 3, 5, 2, 9, 3, tiny.Q, tiny.T, 5


def layout(tokenizer, **fields) -> reader_rows.ReaderLayout:
  """Lengths of the reader's rows, with the special ids of a tokenizer."""
  ids = {x: getattr(tokenizer, x) for x in ('cls_id', 'sep_id', 'pad_id')}
  return reader_rows.ReaderLayout(**ids, **fields)


def config(**realm) -> open_qa.OpenQaConfig:
  return open_qa.OpenQaConfig(
    realm=tiny.config(**realm), span_hidden_size=6, max_span_width=W
  )


def params(c: open_qa.OpenQaConfig, seed: int = 0) -> dict:
  init = lambda: nn.unbox(open_qa.random_params(jax.random.key(0), c))  # noqa: E731
  return tiny.draw(jax.eval_shape(init), seed)


@functools.partial(jax.jit, static_argnums=0)
def span_scores(model: open_qa.OpenQa, params, batch) -> jax.Array:
  """Joint scores of blocks and spans, [B, R, W, L], of a whole batch at once."""
  retriever, spans = (
    model.apply({'params': params}, batch, method=x)
    for x in ('beam_scores', 'read_beam')
  )
  valid = reader_losses.read_blocks(batch)
  return reader_losses.add_retriever(valid, retriever, spans)


def batch(
  seed: int = 0, *, fresh: bool = False, b: int = B, c: int = C, r: int = R
) -> dict[str, np.ndarray]:
  """Questions; the first one has no last block and no last block of the beam.

  Every question has one block with an answer, and gold spans in the first block.
  """
  rng = np.random.default_rng(seed)

  def rows(name, *shape):
    lengths = rng.integers(5, shape[-1] + 1, (*shape[:-1], 1))
    at = np.arange(shape[-1])
    return {
      f'{name}_ids': rng.integers(0, tiny.V, shape, np.int32),
      f'{name}_mask': at < lengths,
      f'{name}_types': np.broadcast_to(at >= 2, shape).astype(np.int32),
    }

  found = rows('question', b, Q) | rows('reader', b, r, L)
  del found['question_types']
  if fresh:
    found |= rows('block', b, r, T)
  at = np.arange(L)
  # Without the two tokens of the question and the last one, [SEP].
  inside = (at >= 2) & np.roll(found['reader_mask'], -1, axis=-1) & (at < L - 1)
  correct = np.zeros((b, r, W, L), bool)
  correct[:, 0, 0, 3] = correct[:, 0, 1, 2] = True
  beam, read = np.ones((b, c), bool), np.ones((b, r), bool)
  if r > 1:
    beam[0, r - 1 :: c - r] = read[0, -1] = False
  has_answer = np.zeros((b, c), bool)
  has_answer[:, 0] = True
  return found | {
    'row_valid': np.ones(b, bool),
    'beam_vectors': rng.standard_normal((b, c, D), np.float32),
    'beam_valid': beam,
    'beam_has_answer': has_answer,
    'reader_valid': read,
    'reader_block_mask': inside,
    'reader_correct': correct,
  }
