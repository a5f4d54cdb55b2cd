# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Sampling with retrieval at every chunk boundary.

Borgeaud et al. 2021, section 2.3: as soon as chunk u is complete its neighbors
are retrieved, before its last token predicts the next: that position is the
first to read them. The model runs once over a buffer of fixed length, then one
token at a time with a cache (model.RetroStep); a text that outgrows the buffer
goes on in a window moved by whole chunks.

Dimension key: B samples, C chunks, M chunk length, L = C M buffer, N neighbors,
R neighbor length, V vocabulary.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array
from jaxtyping import Bool
from jaxtyping import Float
from jaxtyping import Key
import numpy as np

from retrieval import retriever as retriever_lib
from retro_jax import model as model_lib

# Token rows of complete chunks, k -> their neighbors.
RetrieveFn = Callable[[Sequence[np.ndarray], int], retriever_lib.Retrieved]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplingConfig:
  """How tokens are drawn."""

  max_new_tokens: int = 128
  temperature: float = 1.0  # 0: the likeliest token
  top_p: float = 1.0  # smallest set of tokens with at least this mass; 1: all
  top_k: int = 0  # likeliest tokens that are left; 0: all
  num_neighbors: int = 2  # k
  context_chunks: int = 32  # longest buffer, in chunks
  stop_ids: Sequence[int] = ()  # a sample ends with the first of these
  banned_ids: Sequence[int] = ()  # never drawn: padding and the like

  def __post_init__(self):
    """Checks the ranges."""
    for name, ok, expected in (
      ('max_new_tokens', self.max_new_tokens >= 0, '>= 0'),
      ('temperature', self.temperature >= 0, '>= 0'),
      ('top_p', 0 < self.top_p <= 1, 'in (0, 1]'),
      ('top_k', self.top_k >= 0, '>= 0'),
      ('num_neighbors', self.num_neighbors >= 0, '>= 0'),
      ('context_chunks', self.context_chunks >= 2, '>= 2'),
    ):
      if not ok:
        raise ValueError(f'{name} {getattr(self, name)}: expected {expected}.')


@dataclasses.dataclass(frozen=True)
class ChunkNeighbors:
  """What one complete chunk retrieved.

  Attributes:
    ids: [N] int64 chunk ids, -1 for none.
    scores: [N] float32, larger is better.
    tokens: [N, R] int32.
    mask: [N, R] bool.
    titles: [N] of the neighbors' documents.
  """

  ids: np.ndarray
  scores: np.ndarray
  tokens: np.ndarray
  mask: np.ndarray
  titles: list[str]


@dataclasses.dataclass(frozen=True)
class Sample:
  """A prompt and its continuation.

  Attributes:
    tokens: [T] int32, prompt first.
    prompt_length: tokens of the prompt.
    chunk_length: m.
    neighbors: one for each complete chunk; empty without retrieval.
  """

  tokens: np.ndarray
  prompt_length: int
  chunk_length: int
  neighbors: list[ChunkNeighbors]

  @property
  def new_tokens(self) -> np.ndarray:
    """The continuation: [T - prompt_length] int32."""
    return self.tokens[self.prompt_length :]

  def chunks(self) -> list[np.ndarray]:
    """The tokens by chunk; the last may be incomplete."""
    steps = range(0, len(self.tokens), self.chunk_length)
    return [self.tokens[i : i + self.chunk_length] for i in steps]


def keep_mask(
  logits: Float[Array, 'B V'], top_k: int = 0, top_p: float = 1.0
) -> Bool[Array, 'B V']:
  """Which tokens may be drawn.

  Args:
    logits: [B, V] already divided by the temperature.
    top_k: keep the likeliest so many; 0 for all.
    top_p: then keep the smallest set of the likeliest whose mass, among what is
      left, is at least this; never less than one token.

  Returns:
    [B, V] bool. Of equal tokens those of lower id go first.
  """
  order = jnp.argsort(-logits, axis=-1, stable=True)
  logits = jnp.take_along_axis(logits, order, axis=-1)
  if top_k:
    logits = jnp.where(jnp.arange(logits.shape[-1]) < top_k, logits, -jnp.inf)
  probabilities = jax.nn.softmax(logits.astype(jnp.float32), axis=-1)
  keep = probabilities > 0
  if top_p < 1:
    mass_before = jnp.cumsum(probabilities, axis=-1) - probabilities
    keep &= mass_before < top_p
  keep = keep.at[:, 0].set(True)
  back = jnp.argsort(order, axis=-1)
  return jnp.take_along_axis(keep, back, axis=-1)


def draw(
  keys: Key[Array, ' B'], logits: Float[Array, 'B V'], config: SamplingConfig
) -> Array:
  """Draws one token for each row.

  Args:
    keys: [B] keys.
    logits: [B, V].
    config: temperature, top_k, top_p, banned_ids.

  Returns:
    [B] int32.
  """
  logits = logits.astype(jnp.float32)
  if config.banned_ids:
    logits = logits.at[:, jnp.asarray(config.banned_ids)].set(-jnp.inf)
  if config.temperature == 0:
    return jnp.argmax(logits, axis=-1).astype(jnp.int32)
  logits = logits / config.temperature
  if config.top_k or config.top_p < 1:
    keep = keep_mask(logits, config.top_k, config.top_p)
    logits = jnp.where(keep, logits, -jnp.inf)
  return jax.vmap(jax.random.categorical)(keys, logits).astype(jnp.int32)


@functools.partial(jax.jit, static_argnames='model')
def _first_logits(model, params, buffer, last):
  """Logits [B, V] after position `last` of the buffer, and the cache."""
  logits, cache = model.apply(
    {'params': params}, **buffer, last=last, mutable='cache'
  )
  return logits[:, 0], cache


@functools.partial(jax.jit, static_argnames='model', donate_argnames='cache')
def _next_logits(model, params, cache, step):
  """Logits [B, V] after one more token, and the cache."""
  return model_lib.RetroStep(model.config).apply(
    {'params': params, **cache}, **step, mutable='cache'
  )


@functools.partial(jax.jit, static_argnames='config')
def _draw(config, key, step, logits):
  """Draws a token for each row; the key is that of the step and the row."""
  key = jax.random.fold_in(key, step)
  rows = jnp.arange(len(logits))
  keys = jax.vmap(jax.random.fold_in, (None, 0))(key, rows)
  return draw(keys, logits, config)


@dataclasses.dataclass
class _Row:
  """One sample while it grows."""

  tokens: list[int]
  neighbors: list[ChunkNeighbors]
  done: bool = False
  first_chunk: int = 0  # of the window


def _bucket(num_tokens: int, chunk_length: int, most: int) -> int:
  """Chunks of the buffer: the next power of two, at most `most`."""
  chunks = -(-num_tokens // chunk_length)
  return min(1 << max(chunks - 1, 0).bit_length(), most)


def _retrieve(rows, retrieve, chunk_length, k) -> None:
  """Retrieves for every complete chunk that has no neighbors yet."""
  m = chunk_length
  missing = [
    (row, u)
    for row in rows
    for u in range(len(row.neighbors), len(row.tokens) // m)
    if not row.done
  ]
  if not missing:
    return
  chunks = [np.asarray(r.tokens[u * m : u * m + m]) for r, u in missing]
  found = retrieve(chunks, k)
  for i, (row, _) in enumerate(missing):
    row.neighbors.append(
      ChunkNeighbors(
        found.ids[i],
        found.scores[i],
        found.tokens[i],
        found.mask[i],
        found.titles[i],
      )
    )


def _move_windows(rows, num_chunks, chunk_length) -> bool:
  """Moves the windows of texts that outgrow the buffer; whether any moved."""
  moved = False
  for row in rows:
    end = (row.first_chunk + num_chunks) * chunk_length
    if not row.done and len(row.tokens) > end:
      used = -(-len(row.tokens) // chunk_length)
      row.first_chunk = used - max(2, -(-num_chunks // 2))
      moved = True
  return moved


def _fill_buffer(rows, num_chunks, chunk_length, neighbor_shape):
  """The arguments of the model: what the windows hold."""
  size = num_chunks * chunk_length
  buffer = {'tokens': np.zeros((len(rows), size), np.int32)}
  if neighbor_shape is not None:
    shape = (len(rows), num_chunks, *neighbor_shape)
    buffer['neighbors'] = np.zeros(shape, np.int32)
    buffer['neighbor_mask'] = np.zeros(shape, bool)
  for i, row in enumerate(rows):
    window = row.tokens[row.first_chunk * chunk_length :][:size]
    buffer['tokens'][i, : len(window)] = window
    if neighbor_shape is None:
      continue
    seen = row.neighbors[row.first_chunk :][:num_chunks]
    for u, found in enumerate(seen):
      buffer['neighbors'][i, u] = found.tokens
      buffer['neighbor_mask'][i, u] = found.mask
  return buffer


def _last_positions(rows, num_chunks, chunk_length):
  """Where the last token of each row is in its window: [B]."""
  # The last of a row that is done may be one too many for its window.
  size = num_chunks * chunk_length
  lengths = [len(row.tokens) - row.first_chunk * chunk_length for row in rows]
  return np.minimum(lengths, size).astype(np.int32) - 1


def _step_arguments(rows, position, chunk_length, neighbor_shape):
  """The arguments of RetroStep for the last token of each row."""
  m = chunk_length
  tokens = [
    row.tokens[row.first_chunk * m + i]
    for row, i in zip(rows, position, strict=True)
  ]
  step = {'tokens': np.array(tokens, np.int32), 'position': position}
  complete = [
    i for i, r in enumerate(rows) if len(r.tokens) % m == 0 and not r.done
  ]
  if neighbor_shape is None or not complete:
    return step
  # Each number of rows is compiled for itself: few, with the last repeated.
  count = min(1 << (len(complete) - 1).bit_length(), len(rows))
  complete += complete[-1:] * (count - len(complete))
  found = [rows[i].neighbors[-1] for i in complete]
  return step | {
    'rows': np.array(complete, np.int32),
    'neighbors': np.stack([f.tokens for f in found]).astype(np.int32),
    'neighbor_mask': np.stack([f.mask for f in found]),
  }


def sample(
  model: model_lib.Retro,
  params,
  prompts: Sequence[Sequence[int]],
  config: SamplingConfig,
  *,
  retrieve: RetrieveFn | None = None,
  seed: int = 0,
  progress: Callable[[int, int], None] | None = None,
) -> list[Sample]:
  """Continues prompts, each row by itself.

  Args:
    model: a Retro, or its twin.
    params: its parameters.
    prompts: [B] token ids, each starting with BOS as documents do in training.
    config: how tokens are drawn.
    retrieve: such as `Retriever.retrieve_tokens`; None is RETRO[OFF].
    seed: of the draws; a row's do not depend on the other rows.
    progress: called with (tokens drawn, at most so many).

  Returns:
    [B] samples.

  Raises:
    ValueError: for an empty prompt or ids outside the vocabulary.
  """
  c = model.config
  rows = [_Row([int(t) for t in prompt], []) for prompt in prompts]
  for i, row in enumerate(rows):
    if not row.tokens:
      raise ValueError(f'Prompt {i} is empty: give BOS at least.')
    if min(row.tokens) < 0 or max(row.tokens) >= c.vocab_size:
      raise ValueError(
        f'Prompt {i}: token ids {min(row.tokens)}..{max(row.tokens)}, expected '
        f'0..{c.vocab_size - 1}.'
      )
  lengths = [len(row.tokens) for row in rows]
  k = config.num_neighbors if retrieve is not None and c.cca_layers else 0
  shape = (k, c.neighbor_length) if k else None
  most = max(lengths, default=0) + config.max_new_tokens
  num_chunks = _bucket(most, c.chunk_length, config.context_chunks)
  static = dataclasses.replace(  # What compilation depends on.
    config, max_new_tokens=0, stop_ids=(), banned_ids=tuple(config.banned_ids)
  )
  key = jax.random.key(seed)
  cache = None
  for step in range(config.max_new_tokens):
    if k:
      _retrieve(rows, retrieve, c.chunk_length, k)
    moved = _move_windows(rows, num_chunks, c.chunk_length)
    position = _last_positions(rows, num_chunks, c.chunk_length)
    if moved or not step:
      buffer = _fill_buffer(rows, num_chunks, c.chunk_length, shape)
      logits, cache = _first_logits(model, params, buffer, position)
    else:
      args = _step_arguments(rows, position, c.chunk_length, shape)
      logits, cache = _next_logits(model, params, cache, args)
    drawn = _draw(static, key, step, logits)
    for row, token in zip(rows, np.asarray(drawn).tolist(), strict=True):
      if not row.done:
        row.tokens.append(token)
        row.done = token in config.stop_ids
    if progress:
      progress(step + 1, config.max_new_tokens)
    if all(row.done for row in rows):
      break
  if k:  # The last chunk, if it is complete, is shown with its neighbors too.
    for row in rows:
      row.done = False
    _retrieve(rows, retrieve, c.chunk_length, k)
  return [
    Sample(np.asarray(row.tokens, np.int32), n, c.chunk_length, row.neighbors)
    for row, n in zip(rows, lengths, strict=True)
  ]
