# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Greedy continuations of prompts that begin alike, as few-shot prompts do.

The model reads what they share once; each batch goes on from its keys and values,
reads its tokens at once and then writes one token at a time.

Dimension key: B rows, L tokens, V vocabulary.
"""

from collections.abc import Callable, Sequence
import functools

import jax
import jax.numpy as jnp
import numpy as np

from retro_jax.decoding import decode
from retro_jax.nn import retro as model_lib, retro_step

_BLOCK = 64  # lengths are rounded up to it, so that few programs are compiled


@functools.partial(jax.jit, static_argnames='model')
def _read_tails(model, params, cache, tokens, position, last):
  """Logits [B, V] after each row's tokens [B, L], and the cache.

  Args:
    cache: of one row, the shared prefix, which is repeated for B rows.
    position: [B] of the first of these tokens.
    last: [B] of each row's last token among them.
  """

  def repeat(x):  # [H, B, S, K] or [B]
    return jnp.repeat(x, len(tokens), axis=1 if x.ndim == 4 else 0)

  return retro_step.RetroStep(model.config).apply(
    {'params': params, **jax.tree.map(repeat, cache)},
    tokens,
    position,
    last=last,
    mutable='cache',
  )


def write(
  model: model_lib.Retro,
  params,
  prefix: Sequence[int] | np.ndarray,
  tails: Sequence[Sequence[int] | np.ndarray],
  *,
  max_new_tokens: int,
  is_done: Callable[[Sequence[int]], bool],
  batch_size: int = 8,
  progress: Callable[[int, int], None] | None = None,
) -> list[list[int]]:
  """Continue `prefix` + tail with the likeliest tokens, for each tail.

  Args:
    model: a public decoder without retrieval.
    prefix: tokens that all prompts begin with, at least one.
    tails: tokens of each prompt after it, at least one each.
    is_done: whether the tokens written so far end a continuation.
    progress: called with (tails done, tails in all).

  Returns:
    The tokens written after each tail, at most `max_new_tokens`; the last one may
    be what ended it.

  Raises:
    ValueError: without a prefix, for an empty tail or a model of another kind.
  """
  if not len(prefix) or not all(map(len, tails)):
    raise ValueError('Expected at least one token in the prefix and each tail.')
  written: list[list[int]] = [[] for _ in tails]
  if not len(tails):
    return written
  # Equal lengths together: a batch is as long as its longest row.
  order = sorted(range(len(tails)), key=lambda i: len(tails[i]))
  longest = _rounded(len(tails[order[-1]]))
  size = _rounded(len(prefix) + longest + max_new_tokens)
  batch_size = min(batch_size, len(tails))
  buffer = np.zeros((1, size), np.int32)
  buffer[0, : len(prefix)] = prefix
  _, cache = decode.first_logits(
    model, params, {'tokens': buffer}, np.array([len(prefix) - 1])
  )
  for low in range(0, len(order), batch_size):
    chosen = order[low : low + batch_size]
    filled = chosen + chosen[-1:] * (batch_size - len(chosen))
    rows = [tails[i] for i in filled]
    continued = _continue(
      model, params, cache, len(prefix), rows, max_new_tokens, is_done
    )
    for i, tokens in zip(chosen, continued, strict=False):
      written[i] = tokens
    if progress:
      progress(low + len(chosen), len(order))
  return written


def _continue(model, params, prefix_cache, start, rows, most, is_done):
  """Write tokens after each row; the rows follow `start` tokens."""
  lengths = np.array([len(row) for row in rows], np.int32)
  tokens = np.zeros((len(rows), _rounded(max(map(len, rows)))), np.int32)
  for i, row in enumerate(rows):
    tokens[i, : len(row)] = row
  position = np.full(len(rows), start, np.int32)
  logits, cache = _read_tails(
    model, params, prefix_cache, tokens, position, lengths - 1
  )
  position = position + lengths
  written, done = [[] for _ in rows], np.zeros(len(rows), bool)
  for step in range(most):
    likeliest = np.asarray(jnp.argmax(logits, axis=-1), np.int32)
    for i in np.flatnonzero(~done):
      written[i].append(int(likeliest[i]))
      done[i] = is_done(written[i])
    if done.all() or step + 1 == most:
      return written
    step_arguments = {'tokens': likeliest, 'position': position + step}
    logits, cache = decode.next_logits(model, params, cache, step_arguments)
  return written


def _rounded(length: int) -> int:
  return -(-length // _BLOCK) * _BLOCK
