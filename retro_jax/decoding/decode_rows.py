# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The rows that sampling grows, and the arrays that the model takes from them.

A row lies on the grid of chunks: padding on the left, if it is aligned, then
its tokens. The model sees a window of it, which moves by whole chunks.

Dimension key: B rows, C chunks of a window, M chunk length, N neighbors, R
neighbor length.
"""

from collections.abc import Sequence
import dataclasses

import numpy as np

from retro_jax.data import samples
from retro_jax.decoding import growing_text


@dataclasses.dataclass
class GrowingRow:
  """One sample while it grows."""

  grid: list[int]  # padding, then tokens
  padding: int
  prompt_length: int
  # of the prompt, by chunk; None: they are retrieved
  passages: Sequence[samples.ChunkNeighbors] | None
  text: growing_text.GrowingText
  query: np.ndarray | None = None  # of the prompt's last chunk
  neighbors: list[samples.ChunkNeighbors] = dataclasses.field(
    default_factory=list
  )
  done: bool = False
  first_chunk: int = 0  # of the window


@dataclasses.dataclass(frozen=True)
class Batch:
  """Rows, and windows of one size for all of them and all steps."""

  rows: Sequence[GrowingRow]
  num_chunks: int  # C
  chunk_length: int  # M
  # (N, R); None if no row ever reads neighbors
  neighbor_shape: tuple[int, int] | None
  padded: bool  # whether rows may be padded on the left
  # Of a JointRetro, the last tokens of a prompt that find its neighbors, which its last
  # chunk reads, too; 0 for other models.
  prompt_query: int = 0

  @property
  def size(self) -> int:
    """Tokens of a window."""
    return self.num_chunks * self.chunk_length

  def sample(self, row: int) -> samples.Sample:
    """A row as a sample of its present length."""
    row = self.rows[row]
    return samples.Sample(
      np.asarray(row.grid[row.padding :], np.int32),
      row.prompt_length,
      self.chunk_length,
      list(row.neighbors),
      row.padding,
      row.text.text,
    )

  def find_neighbors(self, retrieve: samples.RetrieveFn | None, k: int) -> None:
    """Find the neighbors of every complete chunk that has none yet.

    Args:
      retrieve: called once for all chunks of rows whose prompts bring no neighbors;
        None where there is no such row.
      k: neighbors of a chunk.
    """
    if self.neighbor_shape is None:
      return
    m, rows = self.chunk_length, self.rows
    missing = [
      (i, u)
      for i, row in enumerate(rows)
      for u in range(len(row.neighbors), len(row.grid) // m)
      if not row.done
    ]
    asked = [(i, u) for i, u in missing if rows[i].passages is None]
    chunks = [self._query(rows[i], u) for i, u in asked]
    retrieved = retrieve(chunks, k) if chunks else []
    by_chunk = dict(zip(asked, retrieved, strict=True))
    for i, u in missing:
      passages = rows[i].passages
      rows[i].neighbors.append(
        by_chunk[i, u]
        if passages is None
        else passages[min(self._asking(rows[i], u), len(passages) - 1)]
      )

  def _asking(self, row, u):
    """Return the chunk that retrieves for chunk u."""
    last = (row.padding + row.prompt_length) // self.chunk_length - 1
    return last if self.prompt_query and u == last - 1 else u

  def _query(self, row, u):
    """The tokens that find the neighbors of chunk u."""
    u = self._asking(row, u)
    start, end = u * self.chunk_length, (u + 1) * self.chunk_length
    last = row.padding + row.prompt_length
    if row.query is not None and end <= last:
      return row.query if end == last else row.query[:0]
    if self.prompt_query and end == last:
      start = end - self.prompt_query
    return np.asarray(row.grid[max(start, row.padding) : end])

  def move_windows(self) -> list[int]:
    """Move windows that their texts outgrow; return the rows that moved."""
    moved = []
    for i, row in enumerate(self.rows):
      if not row.done and self._room(row) < 0:
        used = -(-len(row.grid) // self.chunk_length)
        row.first_chunk = used - max(2, -(-self.num_chunks // 2))
        moved.append(i)
    return moved

  def _room(self, row):
    """Tokens that the window still has room for."""
    return row.first_chunk * self.chunk_length + self.size - len(row.grid)

  def last_positions(self) -> np.ndarray:
    """Position of the last token of each row in its window: [B] int32."""
    # The last of a row that is done may be one too many for its window.
    lengths = [self.size - max(self._room(row), 0) for row in self.rows]
    return np.asarray(lengths, np.int32) - 1

  def tokens_to_border(self) -> int:
    """Return how many tokens can be drawn before a row needs the host.

    A row does as soon as a chunk is complete, which retrieves, or
    its window is full.
    """
    m, growing = self.chunk_length, [row for row in self.rows if not row.done]
    counts = [self._room(row) + 1 for row in growing]
    if self.neighbor_shape is not None:
      counts += [m - len(row.grid) % m for row in growing]
    return min(counts)

  def fill_buffer(self, chosen: slice = slice(None)) -> dict[str, np.ndarray]:
    """The arguments of Retro: the content of the windows of some rows."""
    m, rows = self.chunk_length, self.rows[chosen]
    buffer = {'tokens': np.zeros((len(rows), self.size), np.int32)}
    if self.padded:
      buffer['segment_ids'] = np.ones_like(buffer['tokens'])
    for i, row in enumerate(rows):
      window = row.grid[row.first_chunk * m :][: self.size]
      buffer['tokens'][i, : len(window)] = window
      if self.padded and not row.first_chunk:
        buffer['segment_ids'][i, : row.padding] = 0
    if self.neighbor_shape is None:
      return buffer
    if self.prompt_query:
      return buffer | self._entries(rows)
    count = self.num_chunks
    read = [row.neighbors[row.first_chunk :][:count] for row in rows]
    return buffer | self._stacked(read, count)

  def _stacked(self, read, count):
    """The neighbors of `count` chunks of each row, as arguments of Retro."""
    stacked = [samples.stack(x, count, self.neighbor_shape) for x in read]
    tokens, mask = (np.stack(x) for x in zip(*stacked, strict=True))
    return {'neighbors': tokens, 'neighbor_mask': mask}

  def _entries(self, rows):
    """The neighbors that a JointRetro reads in windows, each once.

    Groups of tokens read the neighbors of the chunk before; but that of a prompt's
    last chunk reads this chunk's neighbors.
    """
    entries = np.full((len(rows), self.num_chunks + 1), -1, np.int32)
    read = []
    for row, numbers in zip(rows, entries, strict=True):
      end = (row.padding + row.prompt_length) // self.chunk_length
      chunks = [u for u in range(len(row.neighbors)) if u + 1 != end - 1]
      first = row.first_chunk
      chunks = [u for u in chunks if first <= u + 1 <= first + self.num_chunks]
      read.append([row.neighbors[u] for u in chunks])
      for i, u in enumerate(chunks):
        numbers[u + 1 - first] = i
        if u + 1 == end and u >= first:
          numbers[u - first] = i
    most = max(map(len, read))
    count = min(1 << max(most - 1, 0).bit_length(), self.num_chunks)
    return self._stacked(read, count) | {'entries': entries}

  def step_arguments(self, position: np.ndarray) -> dict[str, np.ndarray]:
    """The arguments of RetroStep for the last token of each row."""
    m, rows = self.chunk_length, self.rows
    tokens = [
      row.grid[row.first_chunk * m + i]
      for row, i in zip(rows, position, strict=True)
    ]
    step = {'tokens': np.array(tokens, np.int32), 'position': position}
    complete = [
      i for i, r in enumerate(rows) if len(r.grid) % m == 0 and not r.done
    ]
    if self.neighbor_shape is None or not complete:
      return step
    # Each number of rows is compiled for itself: few, with the last repeated.
    count = min(1 << (len(complete) - 1).bit_length(), len(rows))
    complete += complete[-1:] * (count - len(complete))
    neighbors = [rows[i].neighbors[-1] for i in complete]
    tokens, mask = samples.stack(neighbors, count, self.neighbor_shape)
    return step | {
      'rows': np.array(complete, np.int32),
      'neighbors': tokens,
      'neighbor_mask': mask,
    }
