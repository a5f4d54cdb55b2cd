# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Overlap of evaluated text with the training data, and the loss by overlap.

Borgeaud et al. 2021, section 2.6: r(C) is the longest run of tokens that an
evaluation chunk C shares with one of its nearest training neighbors, as a share
of the chunk. Bits per byte over the chunks with r(C) <= alpha show how much a
model owes to what it, or its datastore, has seen word for word.

Dimension key: n chunks, M chunk length, N neighbors, R neighbor length.
"""

from collections.abc import Callable, Sequence
import dataclasses
import math

from jaxtyping import Bool, Float, Int
import numpy as np

from retrieval import tokenization
from retrieval.questions import bootstrap
from retrieval.text import chunks as chunks_lib
from retro_jax.data import pipeline

NUM_NEIGHBORS = 10  # of each chunk, as in the paper
_READ_CHUNKS = 512
_NO_TOKEN, _NO_NEIGHBOR = -1, -2  # equal to nothing
_GRAM = 13  # tokens, as in GPT-3's appendix C
_CHUNK = 64  # tokens
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # of hashes
Point = dict[str, float | int]  # as of `curve`


def shared_runs(
  tokens: Int[np.ndarray, '*n M'], neighbors: Int[np.ndarray, '*n N R']
) -> Int[np.ndarray, '*n N R']:
  """Length of the longest run of `tokens` that ends at each token of a neighbor."""
  longest = run = np.zeros(neighbors.shape, np.int32)
  one_on = [(0, 0)] * (neighbors.ndim - 1) + [(1, 0)]
  for t in range(tokens.shape[-1]):
    same = neighbors == tokens[..., t, None, None]
    run = np.where(same, np.pad(run[..., :-1], one_on) + 1, 0)
    longest = np.maximum(longest, run)
  return longest


def longest_runs(
  text: Int[np.ndarray, ' n'], memory: Int[np.ndarray, ' _']
) -> Int[np.ndarray, ' n']:
  """Length of the longest run of `memory` that begins at each token of a text.

  Tokens below 0 are equal to nothing. Runs are compared by hashes of 64 bits.
  """
  size = len(text)
  sides = (text, _NO_TOKEN), (memory, _NO_NEIGHBOR)
  text, memory = (
    np.append(np.where(x < 0, no, x), np.full(size, no)).astype(np.uint64)
    for x, no in sides
  )
  runs, starts = np.zeros(size, np.int64), np.arange(len(memory) - size)
  mine, theirs = np.zeros(size, np.uint64), np.zeros(len(starts), np.uint64)
  for n in range(size):
    mine = mine * _FACTOR + text[n : n + size]
    theirs = theirs * _FACTOR + memory[starts + n]
    shared = np.isin(theirs, mine)
    starts, theirs = starts[shared], theirs[shared]
    if not len(starts):
      break
    runs[np.isin(mine, theirs)] = n + 1
  return runs


def share(
  text: Int[np.ndarray, ' n'], memory: Int[np.ndarray, ' _']
) -> tuple[float, Float[np.ndarray, ' _']]:
  """Share of a text's 13-grams that a memory holds, and r(C) of its chunks.

  A text of fewer tokens is one gram. The last chunk's r(C) is of a whole chunk.
  """
  runs, starts = longest_runs(text, memory), np.arange(len(text))
  inside = np.minimum(runs, _CHUNK - starts % _CHUNK)
  longest = np.maximum.reduceat(inside, starts[::_CHUNK])
  n = min(_GRAM, len(text))
  grams = runs[: len(text) - n + 1] >= n
  return float(grams.mean()), longest / min(_CHUNK, len(text))


def overlap(
  chunks: Int[np.ndarray, '*n M'],
  neighbors: Int[np.ndarray, '*n N R'],
  mask: Bool[np.ndarray, '*n N R'],
  bos_id: int,
  there: Bool[np.ndarray, '*n M'] | bool = True,
) -> Float[np.ndarray, '*n']:
  """r(C) of chunks; BOS is no token of the text.

  Args:
    mask: False where a neighbor has no token.
    there: False where a chunk has none.
  """
  there = there & (chunks != bos_id)
  runs = shared_runs(
    np.where(there, chunks, _NO_TOKEN), np.where(mask, neighbors, _NO_NEIGHBOR)
  )
  longest = runs.max((-2, -1), initial=0)
  return np.asarray(longest / np.maximum(there.sum(-1), 1))


def overlaps(
  reader: pipeline.ChunkReader,
  ids: Int[np.ndarray, ' n'],
  progress: Callable[[int, int], None] | None = None,
) -> Float[np.ndarray, ' n']:
  """r(C) of chunks of an evaluation set, float64.

  It is the longest run shared with one of the reader's neighbors, with their
  continuations, over the chunk's length, so that 1 is a chunk seen whole even at the
  end of a document.

  Args:
    progress: called with (chunks done, chunks in all).

  Raises:
    ValueError: for a reader without neighbors, or stores that do not fit.
  """
  if not reader.num_neighbors:
    raise ValueError('r(C) needs num_neighbors above 0.')
  stores = reader.stores
  bos = stores.chunks.tokens.store.meta['bos_id']
  values, m = np.zeros(len(ids)), reader.chunk_length
  for low in range(0, len(ids), _READ_CHUNKS):
    part = np.asarray(ids[low : low + _READ_CHUNKS])
    tokens, there = stores.chunks.gather(part, m)
    neighbors = stores.neighbors.ids(part)[:, : reader.num_neighbors]
    read = stores.datastore.gather(neighbors, 2 * m)
    values[low : low + len(part)] = overlap(tokens, *read, bos, there)
    if progress:
      progress(low + len(part), len(ids))
  return values


def count_bytes(
  chunks: chunks_lib.ChunkStore,
  ids: Int[np.ndarray, ' n'],
  tokenizer: tokenization.Tokenizer,
) -> Int[np.ndarray, ' n']:
  """UTF-8 bytes of chunks; of a character cut in two, each has its part.

  Raises:
    ValueError: for a tokenizer that loses text.
  """
  token_num_bytes = getattr(tokenizer, 'token_num_bytes', None)
  if token_num_bytes is None:
    raise ValueError(
      'The bytes of a chunk are known for SentencePiece and byte pairs alone, but '
      f'this is a {type(tokenizer).__name__}.'
    )
  counts = np.zeros(len(ids), np.int64)
  for low in range(0, len(ids), _READ_CHUNKS):
    part = slice(low, low + _READ_CHUNKS)
    tokens, mask = chunks.gather(np.asarray(ids[part]), chunks.chunk_length)
    counts[part] = np.where(mask, token_num_bytes[tokens], 0).sum(1)
  return counts


def curve(
  nats: Float[np.ndarray, ' n'],
  num_bytes: Int[np.ndarray, ' n'],
  document: Int[np.ndarray, ' n'],
  overlap: Float[np.ndarray, ' n'],
  alphas: Sequence[float],
) -> list[Point]:
  """Filtered bits per byte, bpb(alpha); bpb(1) is the usual measure.

  Args:
    nats: sum over each chunk's tokens, or the difference of two models' sums, whose
      curve is then a paired bootstrap's.
    num_bytes: UTF-8 bytes of each chunk.
    document: number of its document.
    overlap: r(C), from `overlaps`.

  Returns:
    A dict for each of `alphas`, over the chunks with r(C) <= alpha: `bits_per_byte`,
    NaN without such a chunk; `low` and `high`, its 95 % interval by a bootstrap over
    documents; the numbers of `chunks` and `documents`; and the chunks' `share` of all.
  """
  chunks = nats, num_bytes, document
  return [{'alpha': float(x), **_part(overlap <= x, *chunks)} for x in alphas]


def _part(mask, nats, num_bytes, document) -> Point:
  """Return bits per byte over some chunks, and how many these are."""
  documents, row = np.unique(document[mask], return_inverse=True)
  bits = np.bincount(row, nats[mask] / math.log(2))
  size = np.bincount(row, num_bytes[mask])
  mean = low = high = math.nan
  if (size > 0).any():
    interval = bootstrap.bootstrap(bits[size > 0], size[size > 0])
    mean, low, high = dataclasses.astuple(interval)
  return {
    'bits_per_byte': mean,
    'low': low,
    'high': high,
    'chunks': int(mask.sum()),
    'documents': len(documents),
    'share': float(mask.mean()) if len(mask) else math.nan,
  }
