# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Overlap of evaluated text with the training data, and the loss by overlap.

Borgeaud et al. 2021, section 2.6: r(C) is the longest run of tokens that an
evaluation chunk C shares with one of its nearest training neighbors, as a share
of the chunk. Bits per byte over the chunks with r(C) <= alpha show how much a
model owes to what it, or its datastore, has seen word for word.

Dimension key: n chunks, M chunk length, N neighbors, R neighbor length.
"""

from collections.abc import Callable, Iterable, Sequence
import dataclasses
import math

from jaxtyping import Bool, Float, Int
import numpy as np

from retrieval import tokenization
from retrieval.questions import bootstrap
from retrieval.text import chunks as chunks_lib
from retro_jax.data import pipeline

NUM_NEIGHBORS = 10  # of each chunk, as in the paper
ALPHAS = tuple(i / 8 for i in range(1, 9))
_READ_CHUNKS = 512


class SuffixAutomaton:
  """All runs of a sequence, in linear time and space (Blumer et al. 1985)."""

  def __init__(self, tokens: Iterable[int]):
    """Add one token after another."""
    self._next: list[dict[int, int]] = [{}]
    self._link, self._length = [-1], [0]
    last = 0
    for token in tokens:
      last = self._extend(last, token)

  def _extend(self, last: int, token: int) -> int:
    following, link, length = self._next, self._link, self._length
    new = len(following)
    following.append({})
    link.append(0)
    length.append(length[last] + 1)
    state = last
    while state >= 0 and token not in following[state]:
      following[state][token] = new
      state = link[state]
    if state >= 0:
      target = following[state][token]
      if length[target] > length[state] + 1:
        target = self._split(state, token, target)
      link[new] = target
    return new

  def _split(self, state: int, token: int, target: int) -> int:
    """Give the shorter runs of `target` a state of their own."""
    copy = len(self._next)
    self._next.append(dict(self._next[target]))
    self._link.append(self._link[target])
    self._length.append(self._length[state] + 1)
    self._link[target] = copy
    while state >= 0 and self._next[state].get(token) == target:
      self._next[state][token] = copy
      state = self._link[state]
    return copy

  def longest_run(self, tokens: Iterable[int]) -> tuple[int, int]:
    """The longest run that other tokens share with the sequence.

    Returns:
      Start of the first longest run in `tokens`, and its length; (0, 0) if they
      share no token.
    """
    following, link, length = self._next, self._link, self._length
    state = size = best = end = 0
    for i, token in enumerate(tokens, start=1):
      while state and token not in following[state]:
        state = link[state]
        size = length[state]
      target = following[state].get(token)
      if target is None:
        continue
      state, size = target, size + 1
      if size > best:
        best, end = size, i
    return end - best, best


def longest_shared(
  chunk: Sequence[int], neighbors: Iterable[Sequence[int]]
) -> int:
  """Tokens of the longest run that a chunk shares with any of its neighbors.

  Linear in the tokens of all of them together.

  Returns:
    0 to the length of the chunk.
  """
  automaton = SuffixAutomaton(chunk)
  return max((automaton.longest_run(n)[1] for n in neighbors), default=0)


def overlap(
  chunk: Int[np.ndarray, ' M'],
  neighbors: Int[np.ndarray, 'N R'],
  mask: Bool[np.ndarray, 'N R'],
  bos_id: int,
) -> float:
  """r(C) of one chunk; BOS is no token of the text.

  Args:
    mask: False where a neighbor has no token.
  """
  run, length = _shared(chunk, neighbors, mask, bos_id)
  return run / max(length, 1)


def _shared(chunk, neighbors, mask, bos_id) -> tuple[int, int]:
  """Tokens of the longest run that neighbors share, and of the chunk."""
  own = [t for t in chunk.tolist() if t != bos_id]
  others = (
    row[there].tolist() for row, there in zip(neighbors, mask, strict=True)
  )
  return longest_shared(own, others), len(own)


def whole_neighbors(reader: pipeline.ChunkReader) -> pipeline.ChunkReader:
  """The same reader of whole neighbors, [N, F], which r(C) is measured with."""
  return dataclasses.replace(
    reader, neighbor_length=2 * reader.chunk_length, neighbor_part='full'
  )


def overlaps(
  reader: pipeline.ChunkReader,
  ids: Int[np.ndarray, ' n'],
  progress: Callable[[int, int], None] | None = None,
) -> Float[np.ndarray, ' n']:
  """r(C) of chunks of an evaluation set.

  Args:
    reader: of the evaluation set; its num_neighbors, each of neighbor_length
      tokens, are compared: 10 of up to 128 in the paper.
    ids: [n] chunks.
    progress: called with (chunks done, chunks in all).

  Returns:
    [n] float64: the longest shared run over the chunk's own length, so that 1 is
    a chunk seen whole even at the end of a document. BOS is no token of the text.

  Raises:
    ValueError: for a reader without neighbors, or stores that do not fit.
  """
  runs, lengths = _runs(reader, ids, ids, progress)
  return runs / np.maximum(lengths, 1)


def read_runs(
  reader: pipeline.ChunkReader,
  ids: Int[np.ndarray, ' n'],
  document: Int[np.ndarray, ' n'],
  progress: Callable[[int, int], None] | None = None,
) -> Int[np.ndarray, ' n']:
  """Longest run that each chunk shares with the neighbors that it reads.

  These are the neighbors of the chunk before it (section 2.4).

  Args:
    document: [n] number of each chunk's document.

  Returns:
    [n] int64 tokens; -1 for the first chunk of a document, which reads none.
  """
  follows = np.append(False, document[1:] == document[:-1])
  found = np.full(len(ids), -1, np.int64)
  before = np.asarray(ids)[np.flatnonzero(follows) - 1]
  found[follows], _ = _runs(reader, ids[follows], before, progress)
  return found


def _runs(reader, ids, asked, progress) -> tuple[np.ndarray, np.ndarray]:
  """Longest run of each chunk and the neighbors of `asked`, and its length."""
  if not reader.num_neighbors:
    raise ValueError('r(C) needs num_neighbors above 0.')
  stores = reader.stores
  bos = stores.chunks.tokens.store.meta['bos_id']
  runs, lengths = np.zeros((2, len(ids)), np.int64)
  for low in range(0, len(ids), _READ_CHUNKS):
    part = slice(low, low + _READ_CHUNKS)
    tokens, mask = stores.chunks.gather(
      np.asarray(ids[part]), reader.chunk_length
    )
    found = stores.neighbors.ids(asked[part])[:, : reader.num_neighbors]
    theirs, there = stores.datastore.gather(found, reader.neighbor_length)
    for i in range(len(tokens)):
      own = tokens[i][mask[i]]
      runs[low + i], lengths[low + i] = _shared(own, theirs[i], there[i], bos)
    if progress:
      progress(low + len(tokens), len(ids))
  return runs, lengths


def count_bytes(
  chunks: chunks_lib.ChunkStore,
  ids: Int[np.ndarray, ' n'],
  tokenizer: tokenization.Tokenizer,
) -> Int[np.ndarray, ' n']:
  """UTF-8 bytes of each of [n] chunks; of a character cut in two, each has its part.

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
  """Bits per byte over some of the chunks."""

  bits_per_byte: float  # NaN where no chunk is left
  low: float  # lower end of its 95 % interval, by a bootstrap over documents
  high: float  # its upper end
  chunks: int  # chunks that are left
  documents: int  # documents that these belong to
  share: float  # chunks left, of all


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point(Part):
  """Over the chunks with r(C) <= alpha."""

  alpha: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunPoint(Part):
  """Over the chunks that share as many tokens with the neighbors they read."""

  run: int  # at least, and fewer than the next point's; -1 reads no neighbors


def curve(
  nats: Float[np.ndarray, ' n'],
  num_bytes: Int[np.ndarray, ' n'],
  document: Int[np.ndarray, ' n'],
  overlap: Float[np.ndarray, ' n'],
  alphas: Sequence[float] = ALPHAS,
  seed: int = 0,
) -> list[Point]:
  """Filtered bits per byte: bpb(alpha), of which bpb(1) is the usual one.

  Args:
    nats: [n] what each chunk's tokens cost. The difference of two models' nats
      gives the difference of their curves, as a paired bootstrap.
    num_bytes: [n] UTF-8 bytes of each chunk.
    document: [n] number of its document.
    overlap: [n] r(C), from `overlaps`.
  """
  return [
    Point(
      alpha=float(alpha),
      **_part(overlap <= alpha, nats, num_bytes, document, seed),
    )
    for alpha in alphas
  ]


def by_run(
  nats: Float[np.ndarray, ' n'],
  num_bytes: Int[np.ndarray, ' n'],
  document: Int[np.ndarray, ' n'],
  runs: Int[np.ndarray, ' n'],
  edges: Sequence[int],
  seed: int = 0,
) -> list[RunPoint]:
  """Bits per byte by the longest run that is shared with the neighbors read.

  Args:
    runs: [n] tokens, from `read_runs`.
    edges: each point has the chunks from one edge to the next, the last one all
      above. Other arguments are those of `curve`.
  """
  bin_of = np.searchsorted(edges, runs, side='right') - 1
  return [
    RunPoint(
      run=int(edge), **_part(bin_of == i, nats, num_bytes, document, seed)
    )
    for i, edge in enumerate(edges)
  ]


def _part(kept, nats, num_bytes, document, seed) -> dict[str, float | int]:
  """Return the fields of a `Part`."""
  mean, low, high = _mean(
    nats[kept], num_bytes[kept], document[kept], seed=seed
  )
  return {
    'bits_per_byte': mean,
    'low': low,
    'high': high,
    'chunks': int(kept.sum()),
    'documents': len(np.unique(document[kept])),
    'share': float(kept.mean()) if len(kept) else math.nan,
  }


def _mean(nats, num_bytes, document, seed) -> tuple[float, float, float]:
  """Bits per byte with the ends of its interval."""
  _, row = np.unique(document, return_inverse=True)
  bits = np.bincount(row, nats / math.log(2))
  size = np.bincount(row, num_bytes)
  bits, size = bits[size > 0], size[size > 0]
  if not len(size):
    return math.nan, math.nan, math.nan
  found = bootstrap.bootstrap(bits, size, seed=seed)
  return found.mean, found.low, found.high
