# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""What a trained language model shows to the referee.

Dimension key: B rows, L tokens of a row, P places, V vocabulary.
"""

from collections.abc import Callable, Mapping
import dataclasses
import functools
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
import numpy as np

from retro_jax.data import pipeline, windows as windows_lib
from retro_jax.decoding import decode
from retro_jax.evaluation import continuations, referee
from retro_jax.nn import losses, models, presets

# A batch of rows, places [B, P] -> [B, P, V] log-probabilities of the next tokens.
Distributions = Callable[[pipeline.Row, np.ndarray], Any]
_TABLES = ('embedding', 'encoder_embedding', 'readout')  # rows are tokens


@functools.partial(jax.jit, static_argnames='model')
def distributions(
  model: Any, params: Any, batch: Mapping[str, jax.Array], places: Array
) -> Float[Array, 'B P V']:
  """Log-probabilities of all tokens after places."""
  logits = losses.forward(model, params, batch)
  return jax.nn.log_softmax(
    jnp.take_along_axis(logits, places[..., None], axis=1)
  )


@functools.partial(jax.jit, static_argnames='model')
def _gradients(model, params, batch, place):
  """Largest gradient, by each token's embedding, of a random sum of logits."""
  size, length = model.config.vocab_size, batch['tokens'].shape[1]
  wider = dataclasses.replace(model.config, vocab_size=size + length)
  # Each place has a row of its own in the tables.
  of_places = params['embedding'][batch['tokens'][0]]
  batch = {**batch, 'tokens': size + jnp.arange(length)[None]}
  padding = ((0, length), (0, 0))
  params = params | {
    k: jnp.pad(params[k], padding) for k in _TABLES if k in params
  }
  weights = jax.random.normal(jax.random.key(0), (size,))

  def total(rows):
    table = params['embedding'].at[size:].set(rows)
    changed = params | {'embedding': table}
    logits = losses.forward(models.of(wider), changed, batch)
    return logits[0, place, :size] @ weights

  return jnp.abs(jax.grad(total)(of_places)).max(axis=-1)


def settings_of(model: Any, k: int) -> continuations.Settings:
  """Return the sizes of the rows that a model reads."""
  c = model.model.config
  return continuations.Settings(
    chunk_length=c.chunk_length,
    neighbor_length=c.neighbor_length,
    sequence_chunks=model.config.sequence_chunks,
    stride_chunks=1,
    num_neighbors=k,
  )


def read(model: Any, k: int, tokens: Int[np.ndarray, 'B T']) -> pipeline.Row:
  """Return a batch of rows with the k neighbors that their chunks retrieve."""
  settings, retrieve = settings_of(model, k), None
  if k:
    retrieve = model.data.datastore.lookup(model.config).retrieve_tokens
  count = -(-tokens.shape[1] // settings.chunk_length)
  window = continuations.Window(0, 0, count)
  size = continuations.num_row_chunks(count, settings.sequence_chunks)
  texts = [continuations.Continuation(x.astype(np.int32), 1) for x in tokens]
  windows = [(i, window) for i in range(len(texts))]
  return continuations.make_batch(texts, windows, size, settings, retrieve)


def ask(model: Any, k: int, distributions: Distributions) -> referee.LogProbs:
  """Return the `log_probs` of a model that predicts by `distributions`."""

  def log_probs(tokens, places, documents):
    del documents
    row = read(model, k, tokens)
    missing = len(row['tokens']) - len(tokens)
    padded = np.pad(places, ((0, missing), (0, 0)))
    return np.asarray(distributions(row, padded))[: len(tokens)]

  return log_probs


def _inputs(model, k, tokens) -> pipeline.Row:
  """As `read`, without what a decoder does not see."""
  row = read(model, k, tokens)
  return {x: y for x, y in row.items() if x not in ('targets', 'loss_mask')}


def _decoded(model, k, tokens, places, documents):
  """As `log_probs`, token by token since the last chunk, three at most."""
  del documents
  m, params = model.model.config.chunk_length, model.params
  logits = np.zeros((*places.shape, model.model.config.vocab_size))
  for b, p in np.ndindex(places.shape):
    end = int(places[b, p])
    start = max(end - 3, (end + 1) // m * m - 1, 0)
    buffer = _inputs(model, k, tokens[b : b + 1])
    out, cache = decode.first_logits(
      model.model, params, buffer, np.array([start])
    )
    for at in range(start + 1, end + 1):
      step = {'tokens': tokens[b, at : at + 1], 'position': np.array([at])}
      out, cache = decode.next_logits(model.model, params, cache, step)
    logits[b, p] = np.asarray(jax.nn.log_softmax(out))[0]
  return logits


def memory_tokens(data: Any) -> Int[np.ndarray, ' n']:
  """Return the tokens of all training documents, which begin with BOS."""
  chunks = data.chunks('train')
  documents = windows_lib.find_documents(chunks).index
  rows = [chunks.tokens.document(int(i)) for i in documents]
  return np.concatenate(rows).astype(np.int64)


def memory_paths(data: Any) -> list[pathlib.Path]:
  """Return a data folder's files, but for those of held-out splits alone."""
  others = tuple(f'-{x}' for x in data.splits if x != 'train')
  return [x for x in data.root.iterdir() if not x.name.endswith(others)]


def of(model: Any, k: int) -> referee.Scorer:
  """Return what a language model shows, with k neighbors of each chunk."""
  c, params = model.model.config, jax.device_put(model.params)
  k = k if c.cca_layers else 0
  predict = functools.partial(distributions, model.model, params)
  tokenizer, length = model.data.tokenizer, model.config.sequence_chunks
  length *= c.chunk_length

  def gradient(tokens, place):
    row = read(model, k, tokens[None])
    return _gradients(model.model, params, row, place)[: len(tokens)]

  row = _inputs(model, k, np.zeros((1, length), np.int64))
  first = functools.partial(decode.first_logits, model.model)
  cache = jax.eval_shape(first, params, row, np.zeros(1, np.int32))[1]
  caches = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(cache))
  scorer = referee.Scorer(
    log_probs=ask(model, 0, predict),
    encode=lambda text: [tokenizer.bos_id, *tokenizer.encode(text).ids],
    score=functools.partial(model.loglikelihood, num_neighbors=k),
    gradient=gradient,
    memory=lambda _: np.zeros(0, np.int64),
    num_bytes={'weights': params, 'caches': caches},
    flops_per_token=presets.flops_per_token(c, length, k),
    max_tokens=length,
  )
  if k:
    scorer = with_memory(
      scorer,
      ask(model, k, predict),
      functools.partial(memory_tokens, model.data),
      memory_paths(model.data),
    )
  decoded = functools.partial(_decoded, model, k)
  return dataclasses.replace(scorer, cached=decoded)


def with_memory(
  alone: referee.Scorer,
  log_probs: referee.LogProbs,
  tokens: Callable[[], np.ndarray],
  held: Any,
  **others: Any,
) -> referee.Scorer:
  """Return a scorer with a memory added to it.

  Args:
    tokens: returns the tokens of the memory.
    held: its arrays or paths.
    **others: further fields.
  """
  once = functools.cache(tokens)
  return dataclasses.replace(
    alone,
    log_probs=log_probs,
    without=alone.log_probs,
    cached=None,
    memory=lambda _: once(),
    num_bytes={**alone.num_bytes, 'memory': held},
    **others,
  )
