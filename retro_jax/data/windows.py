# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Windows over whole documents, and rows that several windows share.

Borgeaud et al. 2021, section 2.6 and appendix: windows of one document move by
a stride; each token is scored in one of them. Strides are whole chunks, so the
neighbors of the document's chunks serve every window. Short windows share rows,
as segments, so that no length is paid for but the text's.

Dimension key: B batch, C chunks, D documents, W windows.
"""

from collections.abc import Iterator, Sequence
import dataclasses
import itertools

import numpy as np

from retrieval.text import chunks as chunks_lib

_MAX_OPEN_ROWS = 256


@dataclasses.dataclass(frozen=True)
class Documents:
  """The documents of a chunk store that are evaluated."""

  index: np.ndarray  # [D] int64 number in the token store
  first: np.ndarray  # [D] int64 first chunk
  count: np.ndarray  # [D] int64 number of chunks

  def take(self, chosen: np.ndarray) -> 'Documents':
    """Some of the documents, by numbers or by a mask."""
    return Documents(self.index[chosen], self.first[chosen], self.count[chosen])

  @property
  def start(self) -> np.ndarray:
    """[D] int64 chunks of the documents before each."""
    return np.cumsum(self.count) - self.count

  def places(self, layout: 'Layout') -> np.ndarray:
    """Places of a layout's scored chunks in the order of `chunk_ids`."""
    owner = layout.owner[layout.scored]
    return layout.ids[layout.scored] + (self.start - self.first)[owner]


def find_documents(
  chunks: chunks_lib.ChunkStore, max_documents: int = 0
) -> Documents:
  """All documents of a chunk store, or at most `max_documents`, evenly spread.

  Raises:
    ValueError: when the chunk store is empty.
  """
  index, first, base = [], [], 0
  for count in chunks.store.rows('document'):  # a document is within a shard
    documents = chunks.documents(np.arange(base, base + count))
    starts = np.flatnonzero(np.diff(documents, prepend=-1))
    index.append(documents[starts])
    first.append(base + starts)
    base += count
  if not base:
    raise ValueError(f'{chunks.path}: holds no chunk to evaluate.')
  index, first = np.concatenate(index), np.concatenate(first)
  documents = Documents(index, first, np.diff(first, append=base))
  if not 0 < max_documents < len(index):
    return documents
  chosen = np.linspace(0, len(index) - 1, max_documents)
  return documents.take(chosen.round().astype(int))


def chunk_ids(documents: Documents) -> tuple[np.ndarray, np.ndarray]:
  """All chunks of documents, one document after another.

  Returns:
    ids: [n] int64 chunks.
    row: [n] int64 of each chunk's document in `documents`.
  """
  row = np.repeat(np.arange(len(documents.count)), documents.count)
  shift = documents.first - documents.start
  return np.arange(len(row)) + shift[row], row


@dataclasses.dataclass(frozen=True)
class Windows:
  """Spans of chunks of one document."""

  document: np.ndarray  # [W] row in `Documents`
  first: np.ndarray  # [W] first chunk
  count: np.ndarray  # [W] chunks, at most the sequence's
  # [W] leading chunks that are context alone: scored in another window
  skip: np.ndarray


def make_windows(
  documents: Documents, sequence_chunks: int, stride_chunks: int
) -> Windows:
  """Cut documents into windows that score every token once.

  What a window scores beyond the first has at least sequence - stride chunks of
  context.

  Raises:
    ValueError: for a stride outside 1..sequence_chunks.
  """
  if not 1 <= stride_chunks <= sequence_chunks:
    raise ValueError(
      f'stride of {stride_chunks} chunks: expected 1..{sequence_chunks}, the '
      'chunks of a sequence.'
    )
  beyond = np.maximum(documents.count - sequence_chunks, 0)
  number = 1 + -(-beyond // stride_chunks)
  document = np.repeat(np.arange(len(number)), number)
  nth = np.arange(len(document)) - np.repeat(np.cumsum(number) - number, number)
  start = nth * stride_chunks
  return Windows(
    document=document,
    first=documents.first[document] + start,
    count=np.minimum(documents.count[document] - start, sequence_chunks),
    skip=np.where(nth, sequence_chunks - stride_chunks, 0),
  )


def pack_windows(
  counts: Sequence[int], sequence_chunks: int
) -> Iterator[list[int]]:
  """Pack windows into rows, each into the row it fills best; yield their numbers."""
  rooms: list[list[list[int]]] = [[] for _ in range(sequence_chunks + 1)]
  num_open = 0
  for window, count in enumerate(counts):
    left = next((r for r in range(count, len(rooms)) if rooms[r]), None)
    if left is None:
      row, left = [], sequence_chunks
    else:
      row = rooms[left].pop(0)
      num_open -= 1
    row.append(window)
    if left == count:
      yield row
      continue
    rooms[left - count].append(row)
    num_open += 1
    if num_open > _MAX_OPEN_ROWS:
      yield next(room for room in rooms if room).pop(0)
      num_open -= 1
  for room in rooms:
    yield from room


@dataclasses.dataclass(frozen=True)
class Layout:
  """Where windows stand in one batch of rows: [B, C] each."""

  ids: np.ndarray  # chunks, -1 for padding
  segments: np.ndarray  # window within the row, from 1; 0 for padding
  owner: np.ndarray  # row in `Documents`, -1 for padding
  scored: np.ndarray  # whether the chunk is scored here


def _lay_out(windows, rows, shape) -> Layout:
  """Lay packed windows out in a batch of the shape (rows, chunks)."""
  ids, owner = np.full((2, *shape), -1, np.int64)
  segments = np.zeros(shape, np.int32)
  scored = np.zeros(shape, bool)
  for r, row in enumerate(rows):
    at = 0
    for segment, w in enumerate(row, start=1):
      count = int(windows.count[w])
      span = slice(at, at + count)
      ids[r, span] = windows.first[w] + np.arange(count)
      segments[r, span] = segment
      owner[r, span] = windows.document[w]
      scored[r, at + int(windows.skip[w]) : at + count] = True
      at += count
  return Layout(ids, segments, owner, scored)


def layouts(
  windows: Windows, sequence_chunks: int, batch_size: int
) -> Iterator[Layout]:
  """Pack and lay out all windows, a batch of rows at a time."""
  rows = pack_windows(windows.count.tolist(), sequence_chunks)
  while batch := list(itertools.islice(rows, batch_size)):
    yield _lay_out(windows, batch, (batch_size, sequence_chunks))


def shuffle_chunks(
  ids: np.ndarray, first: np.ndarray, count: np.ndarray, total: int, seed: int
) -> np.ndarray:
  """For each chunk a random chunk of another document, the same in every window.

  Args:
    ids: [...] chunk ids; -1 stays.
    first: [...] first chunk of each chunk's document.
    count: [...] chunks of that document.
    total: chunks of all documents, two at least.

  Raises:
    ValueError: when there is one document alone.
  """
  others = total - count
  if ((others <= 0) & (ids >= 0)).any():
    raise ValueError(
      'Shuffled neighbors need at least two documents in the evaluation set.'
    )
  x = ids.astype(np.uint64) + np.uint64(1)
  x *= np.uint64(0x9E3779B97F4A7C15)
  x += np.uint64(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])
  for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
    x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
  x ^= x >> np.uint64(31)
  chosen = (x % np.maximum(others, 1).astype(np.uint64)).astype(np.int64)
  chosen += np.where(chosen >= first, count, 0)
  return np.where(ids >= 0, chosen, -1)


def num_targets(
  chunks: chunks_lib.ChunkStore, documents: Documents
) -> np.ndarray:
  """Tokens of each document that something predicts: all but the first."""
  last = documents.first + documents.count - 1
  before = (documents.count - 1) * chunks.chunk_length
  return before + chunks.lengths(last) - 1
