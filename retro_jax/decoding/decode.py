# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Sampling with retrieval at every chunk boundary.

Borgeaud et al. 2021, section 2.4: as soon as chunk u is complete its neighbors
are retrieved, before its last token predicts the next: that position is the
first to read them. The model runs once over a buffer of fixed length, then one
token at a time with a cache (nn/retro_step.py); a text that outgrows the buffer
goes on in a window moved by whole chunks, over which the model runs again.

Dimension key: B samples, C chunks, M chunk length, L = C M buffer, N neighbors,
R neighbor length, V vocabulary.
"""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from retrieval.kernels import backend
from retro_jax.data import samples
from retro_jax.decoding import decode_rows, drawing, growing_text
from retro_jax.decoding.drawing import SamplingConfig
from retro_jax.nn import models, retro as model_lib


@functools.partial(jax.jit, static_argnames='model')
def first_logits(model, params, buffer, last):
  """Logits [B, V] after position `last` of the buffer, and the cache."""
  logits, cache = model.apply(
    {'params': params}, **buffer, last=last, mutable='cache'
  )
  return logits[:, 0], cache


@functools.partial(jax.jit, static_argnames='model', donate_argnames='cache')
def next_logits(model, params, cache, step):
  """Logits [B, V] after one more token, and the cache."""
  return models.step_of(model).apply(
    {'params': params, **cache}, **step, mutable='cache'
  )


@functools.partial(
  jax.jit,
  static_argnames=('model', 'config', 'most'),
  donate_argnames='cache',
)
def draw_tokens(
  model, params, config, most, key, numbers, logits, cache, position, last, step
):
  """Draw tokens, one after the other, without a word to the host.

  Args:
    config: as of `drawing.of_draws`.
    most: T, tokens at most.
    logits: [B, V] of the first tokens.
    position: [B] of the tokens before those.
    last: [B] positions of the last tokens that the cache takes; a row that does
      not go on stays at its `position`.
    step: [2] of the first draw, and of the first that is left for later.

  Returns:
    Tokens [T, B], whose rows after the last draw are 0, and the cache, which
    knows all of them but the last.
  """
  draw = functools.partial(drawing.draw_rows, config, key)
  # Matrices, which each token reads, are cast once for many; vectors stay.
  dtype = model.config.dtype
  params = jax.tree.map(lambda x: x.astype(dtype) if x.ndim > 1 else x, params)
  tokens = jnp.zeros((most, len(position)), jnp.int32)

  def more(i, state):
    tokens, cache = state
    arguments = {
      'tokens': tokens[i - 1],
      'position': jnp.minimum(position + i, last),
    }
    logits, cache = next_logits(model, params, cache, arguments)
    drawn = draw(step[0] + i, numbers, logits)
    return tokens.at[i].set(drawn), cache

  tokens = tokens.at[0].set(draw(step[0], numbers, logits))
  return jax.lax.fori_loop(1, step[1] - step[0], more, (tokens, cache))


@functools.partial(jax.jit, donate_argnames='batch')
def put_row(batch, alone, row):
  """Replace one row of a batch's logits and cache by a new pass over the row."""

  def put(old, new):
    axes = [i for i, n in enumerate(old.shape) if n != new.shape[i]]
    if not axes:  # relative keys, which all rows share
      return old
    return jax.lax.dynamic_update_slice_in_dim(old, new, row, axes[0])

  return jax.tree.map(put, batch, alone)


def sample(
  model: model_lib.Retro,
  params: Any,
  prompts: Sequence[samples.Prompt],
  config: SamplingConfig,
  **settings: Any,
) -> list[samples.Sample]:
  """Continue prompts, each row by itself; arguments and errors as of `stream`."""
  events = stream(model, params, prompts, config, **settings)
  finished = [e for e in events if isinstance(e, samples.Finished)]
  return [e.sample for e in sorted(finished, key=lambda e: e.row)]


def stream(
  model: model_lib.Retro,
  params: Any,
  prompts: Sequence[samples.Prompt],
  config: SamplingConfig,
  *,
  detokenize: samples.DetokenizeFn,
  retrieve: samples.RetrieveFn | None = None,
  seed: int = 0,
  row_numbers: Sequence[int] | None = None,
  progress: Callable[[int, int], None] | None = None,
) -> Iterator[samples.Event]:
  """Continue prompts, and yield an event for each step.

  Args:
    prompts: [B] prompts, without neighbors for a baseline.
    detokenize: tokens -> text, for stop strings and the text of events.
    retrieve: such as `Retriever.retrieve_tokens`; None is RETRO[OFF], but for
      prompts that bring neighbors.
    row_numbers: [B] which decide the draws, with the seed; default 0, 1, ... So
      a row's do not depend on which others are drawn beside it.
    progress: called with (tokens drawn, at most so many).

  Returns:
    An iterator of events: Drawn for every token, in the end Finished for every row.

  Raises:
    ValueError: for an empty prompt, or ids outside the vocabulary.
  """
  c = model.config
  rows = [
    _start_row(i, prompt, c, config, detokenize)
    for i, prompt in enumerate(prompts)
  ]
  k = config.num_neighbors if retrieve is not None and c.cca_layers else 0
  if not k:
    for row in rows:
      row.passages = row.passages or _no_neighbors(c)
  batch = _batch(rows, c, config, k)
  numbers = range(len(rows)) if row_numbers is None else row_numbers
  writer = _Writer(
    model,
    params,
    batch,
    drawing.of_draws(config),
    config.tokens_per_call or (1 if backend.is_cpu() else c.chunk_length),
    jax.random.key(seed),
    np.asarray(numbers, np.int32),
  )
  find = functools.partial(batch.find_neighbors, retrieve, k)
  return _events(batch, config, writer, find, progress)


def _start_row(number, prompt, c, config, detokenize) -> decode_rows.GrowingRow:
  """Check a prompt and put it on the grid of chunks."""
  tokens = [int(t) for t in prompt.tokens]
  if not tokens:
    raise ValueError(f'Prompt {number} is empty: give BOS at least.')
  if min(tokens) < 0 or max(tokens) >= c.vocab_size:
    raise ValueError(
      f'Prompt {number}: token ids {min(tokens)}..{max(tokens)}, expected '
      f'0..{c.vocab_size - 1}.'
    )
  passages = prompt.neighbors
  if passages is not None:
    passages = tuple(passages) or _no_neighbors(c)
  query = prompt.query
  aligned = config.align_prompt or c.joint or query is not None
  padding = -len(tokens) % c.chunk_length if aligned else 0
  text = growing_text.GrowingText(detokenize, config.stop_strings)
  if query is not None:
    query = np.asarray(query, np.int32)[-c.chunk_length :]
  return decode_rows.GrowingRow(
    [0] * padding + tokens, padding, len(tokens), passages, text, query
  )


def _no_neighbors(c) -> tuple[samples.ChunkNeighbors]:
  """Empty neighbors, read at every chunk of a row without retrieval."""
  return (samples.given_neighbors((), c.neighbor_length),)


def _batch(rows, c, config, k) -> decode_rows.Batch:
  """Rows in windows for the longest text and the most neighbors."""
  longest = max((len(row.grid) for row in rows), default=0)
  counts = [len(x.tokens) for row in rows for x in row.passages or ()]
  num_neighbors = max(k, *counts, 0)
  chunks = -(-(longest + config.max_new_tokens) // c.chunk_length)
  return decode_rows.Batch(
    rows,
    min(1 << (chunks - 1).bit_length(), config.context_chunks),
    c.chunk_length,
    (num_neighbors, c.neighbor_length) if num_neighbors else None,
    config.align_prompt or c.joint or any(x.query is not None for x in rows),
    config.prompt_query if c.joint else 0,
  )


def _events(batch, config, writer, find, progress):
  """Draw token after token and yield the events of `stream`."""
  rows = batch.rows
  cache, step = None, 0
  while step < config.max_new_tokens and not all(row.done for row in rows):
    find()
    logits, cache = writer.forward(cache)
    left = config.max_new_tokens - step
    drawn, cache = writer.draw(logits, cache, step, left)
    for tokens in drawn:
      for i, (row, token) in enumerate(zip(rows, tokens, strict=True)):
        if row.done:
          continue
        row.grid.append(token)
        text = row.text.add(token)
        row.done = token in config.stop_ids or row.text.stopped
        yield samples.Drawn(i, token, text)
      step += 1
      if progress:
        progress(step, config.max_new_tokens)
  for row in rows:
    row.done = False
  # The last chunk, if it is complete, is shown with its neighbors too.
  find()
  for i, row in enumerate(rows):
    text = row.text.finish()
    yield samples.Finished(i, text, batch.sample(i))


@dataclasses.dataclass(frozen=True)
class _Writer:
  """The model, and the draws from it."""

  model: model_lib.Retro
  params: Any
  batch: decode_rows.Batch
  config: SamplingConfig  # as of `drawing.of_draws`
  most: int  # tokens of a call
  key: jax.Array
  numbers: np.ndarray  # [B] of the rows

  def forward(self, cache):
    """Logits [B, V] of the next tokens, and the cache.

    A window moves by its row's length, so that no draw depends on other rows.
    Few rows that move are read anew by themselves.
    """
    batch, of_model = self.batch, (self.model, self.params)
    moved = batch.move_windows()
    position = batch.last_positions()
    if cache is None or 2 * len(moved) > len(batch.rows):
      return first_logits(*of_model, batch.fill_buffer(), position)
    result = next_logits(*of_model, cache, batch.step_arguments(position))
    for i in moved:
      row = slice(i, i + 1)
      alone = first_logits(*of_model, batch.fill_buffer(row), position[row])
      result = put_row(result, alone, i)
    return result

  def draw(self, logits, cache, step, left):
    """Next tokens [T][B] of all rows, T <= most, left, and the cache."""
    count = min(self.most, left, self.batch.tokens_to_border())
    key, of_rows = self.key, (self.numbers, logits)
    if count == 1:
      drawn = drawing.draw_rows(self.config, key, step, *of_rows)
      return [drawn.tolist()], cache
    position = self.batch.last_positions()
    grows = np.array([not row.done for row in self.batch.rows])
    last = position + grows * (count - 1)
    steps = np.array([step, step + count], np.int32)
    how = self.model, self.params, self.config, self.most
    tokens, cache = draw_tokens(
      *how, key, *of_rows, cache, position, last, steps
    )
    return tokens[:count].tolist(), cache
