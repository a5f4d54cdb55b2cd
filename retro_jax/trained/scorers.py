# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Build the referee's scorer of a trained language model.

Dimension key: B rows, L tokens of a row, P places, V vocabulary.
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
import numpy as np

from retrieval.search import names
from retro_jax.data import pipeline, windows as windows_lib
from retro_jax.decoding import decode
from retro_jax.evaluation import continuations, reached, referee
from retro_jax.nn import losses, models, presets

# A batch of rows, places [B, P] -> [B, P, V] log-probabilities of the next tokens.
Distributions = Callable[[pipeline.Row, np.ndarray], Any]
_TABLES = ('embedding', 'encoder_embedding', 'readout')  # rows are tokens


_forward = jax.jit(losses.forward, static_argnames='model')


def distributions(
  model: Any,
  params: Any,
  batch: pipeline.Row,
  places: Int[np.ndarray, 'B P'],
) -> Float[Array, 'B P V']:
  """Log-probabilities of all tokens after places; compiled once for any places."""
  logits = _forward(model, params, batch)
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


def read(model: Any, k: int, tokens: Int[np.ndarray, 'B T']) -> pipeline.Row:
  """Return a batch of rows with the k neighbors that their chunks retrieve."""
  c, retrieve, longest = model.model.config, None, model.config.sequence_chunks
  settings = continuations.Settings(
    chunk_length=c.chunk_length,
    neighbor_length=c.neighbor_length,
    sequence_chunks=longest,
    stride_chunks=1,
    num_neighbors=k,
  )
  if k:
    retrieve = model.data.datastore.lookup(model.config).retrieve_tokens
  count = -(-tokens.shape[1] // c.chunk_length)
  windows = [(i, continuations.Window(0, 0, count)) for i in range(len(tokens))]
  size = continuations.num_row_chunks(count, longest)
  texts = [continuations.Continuation(x.astype(np.int32), 1) for x in tokens]
  return continuations.make_batch(texts, windows, size, settings, retrieve)


def _context(model: Any, k: int, tokens: Int[np.ndarray, 'B T']):
  """Return a decoder's inputs for rows of tokens."""
  row = read(model, k, tokens)
  return {x: y for x, y in row.items() if x not in ('targets', 'loss_mask')}


def ask(model: Any, k: int, distributions: Distributions) -> referee.LogProbs:
  """Return the `log_probs` of a model that predicts by `distributions`."""

  def log_probs(tokens, places, documents):
    del documents
    row = read(model, k, tokens)
    missing = len(row['tokens']) - len(tokens)
    padded = np.pad(places, ((0, missing), (0, 0)))
    return np.asarray(distributions(row, padded))[: len(tokens)]

  return log_probs


def _decoded(model, k, tokens, places, documents):
  """As `log_probs`; a chunk's last token reads its neighbors, others the cache."""
  del documents
  m, one = model.model.config.chunk_length, functools.partial(np.full, (1,))
  logits = np.zeros((*places.shape, model.model.config.vocab_size))
  for b, p in np.ndindex(places.shape):
    at = int(places[b, p])
    step = 0 < at and at % m < m - 1
    row = _context(model, k, tokens[b : b + 1])
    out, cache = decode.first_logits(
      model.model, model.params, row, one(at - step)
    )
    if step:
      following = {'tokens': tokens[b, at : at + 1], 'position': one(at)}
      out, _ = decode.next_logits(model.model, model.params, cache, following)
    logits[b, p] = np.asarray(jax.nn.log_softmax(out))[0]
  return logits


def memory_tokens(data: Any) -> Int[np.ndarray, ' n']:
  """Return the tokens of all training documents, which begin with BOS."""
  chunks = data.chunks('train')
  documents = windows_lib.find_documents(chunks).index
  rows = [chunks.tokens.document(int(i)) for i in documents]
  return np.concatenate(rows).astype(np.int64)


def memory_bytes(data: Any) -> int:
  """Bytes of a data folder's files that neighbors of new text are read from."""
  others = tuple(f'-{x}' for x in data.splits if x != 'train')
  unread = ('neighbors', 'vectors', 'index')
  unread = unread[: 1 if data.source in names.WITH_VECTORS else None]
  files = (x for x in data.root.iterdir() if not x.name.endswith(others))
  read = (x for x in files if not x.name.startswith(unread))
  return reached.files_bytes(*read)


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

  row = _context(model, k, np.zeros((1, length), np.int64))
  first = functools.partial(decode.first_logits, model.model)
  cache = jax.eval_shape(first, params, row, np.zeros(1, np.int32))[1]
  caches = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(cache))
  weights = reached.num_bytes(params)
  scorer = referee.Scorer(
    log_probs=ask(model, 0, predict),
    encode=lambda text: [tokenizer.bos_id, *tokenizer.encode(text).ids],
    score=functools.partial(model.loglikelihood, num_neighbors=k),
    cached=functools.partial(_decoded, model, k),
    gradient=gradient,
    memory=lambda _: np.zeros(0, np.int64),
    num_bytes=lambda: {'weights': weights, 'caches': caches},
    flops_per_token=presets.flops_per_token(c, length, k),
    max_tokens=length,
    batch_size=2,
  )
  if not k:
    return scorer
  return with_memory(
    scorer,
    ask(model, k, predict),
    functools.partial(memory_tokens, model.data),
    memory_bytes(model.data),
    cached=scorer.cached,
  )


def with_memory(
  alone: referee.Scorer,
  log_probs: referee.LogProbs,
  tokens: Callable[[], np.ndarray],
  num_bytes: int,
  cached: referee.LogProbs | None = None,
) -> referee.Scorer:
  """Return a scorer with a memory of some tokens and bytes added to it."""
  once = functools.cache(tokens)
  return dataclasses.replace(
    alone,
    log_probs=log_probs,
    without=alone.log_probs,
    cached=cached,
    memory=lambda _: once(),
    num_bytes=lambda: alone.num_bytes() | {'memory': num_bytes},
  )
