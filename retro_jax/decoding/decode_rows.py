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
  given: Sequence[samples.ChunkNeighbors] | None
  text: growing_text.GrowingText | None
  neighbors: list[samples.ChunkNeighbors] = dataclasses.field(
    default_factory=list
  )
  done: bool = False
  first_chunk: int = 0  # of the window

  def sample(self, chunk_length: int) -> samples.Sample:
    """The row as a sample of its present length."""
    return samples.Sample(
      np.asarray(self.grid[self.padding :], np.int32),
      self.prompt_length,
      chunk_length,
      list(self.neighbors),
      self.padding,
      None if self.text is None else self.text.text,
    )


@dataclasses.dataclass(frozen=True)
class Windows:
  """Sizes of windows, the same for all rows and steps."""

  num_chunks: int  # C
  chunk_length: int  # M
  # (N, R); None if no row ever reads neighbors
  neighbor_shape: tuple[int, int] | None
  padded: bool  # whether rows may be padded on the left

  @property
  def size(self) -> int:
    """Tokens of a window."""
    return self.num_chunks * self.chunk_length


def bucket(num_tokens: int, chunk_length: int, most: int) -> int:
  """Chunks of the window: the next power of two, at most `most`."""
  chunks = -(-num_tokens // chunk_length)
  return min(1 << max(chunks - 1, 0).bit_length(), most)


def find_neighbors(
  rows: Sequence[GrowingRow],
  retrieve: samples.RetrieveFn | None,
  k: int,
  chunk_length: int,
) -> list[samples.Read]:
  """Find the neighbors of every complete chunk that has none yet.

  Args:
    rows: all rows. A row with neighbors of its own gets those.
    retrieve: called once for all chunks of the other rows; None where every row
      has neighbors of its own.
    chunk_length: M.

  Returns:
    An event for each chunk; the rows hold the same neighbors.
  """
  m = chunk_length
  missing = [
    (i, u)
    for i, row in enumerate(rows)
    for u in range(len(row.neighbors), len(row.grid) // m)
    if not row.done
  ]
  asked = [(i, u) for i, u in missing if rows[i].given is None]
  chunks = [
    np.asarray(rows[i].grid[max(u * m, rows[i].padding) : u * m + m])
    for i, u in asked
  ]
  retrieved = samples.by_chunk(retrieve(chunks, k)) if chunks else []
  found = dict(zip(asked, retrieved, strict=True))
  events = []
  for i, u in missing:
    given = rows[i].given
    neighbors = found[i, u] if given is None else given[min(u, len(given) - 1)]
    rows[i].neighbors.append(neighbors)
    events.append(samples.Read(i, u, neighbors))
  return events


def move_windows(rows: Sequence[GrowingRow], windows: Windows) -> list[int]:
  """Move windows that their texts outgrow; return the rows that moved."""
  moved = []
  for i, row in enumerate(rows):
    end = (row.first_chunk + windows.num_chunks) * windows.chunk_length
    if not row.done and len(row.grid) > end:
      used = -(-len(row.grid) // windows.chunk_length)
      row.first_chunk = used - max(2, -(-windows.num_chunks // 2))
      moved.append(i)
  return moved


def last_positions(rows: Sequence[GrowingRow], windows: Windows) -> np.ndarray:
  """Position of the last token of each row in its window: [B] int32."""
  # The last of a row that is done may be one too many for its window.
  m = windows.chunk_length
  lengths = [len(row.grid) - row.first_chunk * m for row in rows]
  return np.minimum(lengths, windows.size).astype(np.int32) - 1


def tokens_to_border(rows: Sequence[GrowingRow], windows: Windows) -> int:
  """Return how many tokens can be drawn before a row needs the host.

  A row does as soon as a chunk is complete, whose neighbors are to be found, or
  its window is full.
  """
  m = windows.chunk_length
  retrieves = windows.neighbor_shape is not None
  counts = []
  for row in rows:
    if not row.done:
      end = (row.first_chunk + windows.num_chunks) * m
      counts.append(end - len(row.grid) + 1)
      if retrieves:
        counts.append(m - len(row.grid) % m)
  return min(counts)


def fill_buffer(
  rows: Sequence[GrowingRow], windows: Windows
) -> dict[str, np.ndarray]:
  """The arguments of Retro: the content of the windows."""
  m, shape = windows.chunk_length, windows.neighbor_shape
  buffer = {'tokens': np.zeros((len(rows), windows.size), np.int32)}
  if windows.padded:
    buffer['segment_ids'] = np.ones_like(buffer['tokens'])
  for i, row in enumerate(rows):
    window = row.grid[row.first_chunk * m :][: windows.size]
    buffer['tokens'][i, : len(window)] = window
    if windows.padded and not row.first_chunk:
      buffer['segment_ids'][i, : row.padding] = 0
  if shape is None:
    return buffer
  num_chunks = windows.num_chunks
  by_chunk = [row.neighbors[row.first_chunk :][:num_chunks] for row in rows]
  stacked = [samples.stack(found, num_chunks, shape) for found in by_chunk]
  tokens, mask = (np.stack(x) for x in zip(*stacked, strict=True))
  return buffer | {'neighbors': tokens, 'neighbor_mask': mask}


def step_arguments(
  rows: Sequence[GrowingRow], position: np.ndarray, windows: Windows
) -> dict[str, np.ndarray]:
  """The arguments of RetroStep for the last token of each row."""
  m, shape = windows.chunk_length, windows.neighbor_shape
  tokens = [
    row.grid[row.first_chunk * m + i]
    for row, i in zip(rows, position, strict=True)
  ]
  step = {'tokens': np.array(tokens, np.int32), 'position': position}
  complete = [
    i for i, r in enumerate(rows) if len(r.grid) % m == 0 and not r.done
  ]
  if shape is None or not complete:
    return step
  # Each number of rows is compiled for itself: few, with the last repeated.
  count = min(1 << (len(complete) - 1).bit_length(), len(rows))
  complete += complete[-1:] * (count - len(complete))
  found = [rows[i].neighbors[-1] for i in complete]
  tokens, mask = samples.stack(found, count, shape)
  return step | {
    'rows': np.array(complete, np.int32),
    'neighbors': tokens,
    'neighbor_mask': mask,
  }
