# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Inputs and outputs of sampling: prompts, neighbors, samples, events.

Dimension key: N neighbors, R neighbor length, T tokens.
"""

from collections.abc import Callable, Sequence
import dataclasses

import numpy as np

# Tokens -> their text.
DetokenizeFn = Callable[[Sequence[int]], str]


@dataclasses.dataclass(frozen=True)
class ChunkNeighbors:
  """Neighbors that one complete chunk reads, best first."""

  # [N] int64 chunk ids, and [N] float32 scores, larger is better; -1 and -inf for a
  # missing neighbor, or one that came with the prompt
  ids: np.ndarray
  scores: np.ndarray
  tokens: np.ndarray  # [N, R] int32
  mask: np.ndarray  # [N, R] bool; a neighbor without any token is missing
  titles: list[str]  # [N] of the neighbors' documents
  unit: str = 'score'  # of the scores, as of `retriever.Retriever`


# Token rows of complete chunks, k -> the neighbors of each.
RetrieveFn = Callable[[Sequence[np.ndarray], int], list[ChunkNeighbors]]


def given_neighbors(
  passages: Sequence[Sequence[int] | np.ndarray],
  neighbor_length: int,
  titles: Sequence[str] = (),
  at_least: int = 0,
) -> ChunkNeighbors:
  """The first R tokens of passages, as the neighbors of a chunk.

  Args:
    neighbor_length: R, of the model.
    titles: to be shown; default ''.
    at_least: N, if there are fewer passages; the others are missing.

  Raises:
    ValueError: for a passage without tokens.
  """
  count = max(len(passages), at_least)
  tokens = np.zeros((count, neighbor_length), np.int32)
  mask = np.zeros((count, neighbor_length), bool)
  for i, passage in enumerate(passages):
    if not len(passage):
      raise ValueError(f'Passage {i} has no tokens.')
    beginning = passage[:neighbor_length]
    tokens[i, : len(beginning)], mask[i, : len(beginning)] = beginning, True
  return ChunkNeighbors(
    np.full(count, -1),
    np.full(count, -np.inf, np.float32),
    tokens,
    mask,
    [*titles, *[''] * (count - len(titles))],
  )


def stack(
  by_chunk: Sequence[ChunkNeighbors], count: int, shape: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
  """Return tokens and mask [count, N, R] of at most `count` chunks; `shape` is (N, R)."""
  tokens = np.zeros((count, *shape), np.int32)
  mask = np.zeros((count, *shape), bool)
  for u, neighbors in enumerate(by_chunk):
    n = len(neighbors.tokens)
    tokens[u, :n], mask[u, :n] = neighbors.tokens, neighbors.mask
  return tokens, mask


@dataclasses.dataclass(frozen=True)
class Prompt:
  """A text to continue."""

  # [T] ids, starting with BOS as documents do in training
  tokens: Sequence[int] | np.ndarray
  # by chunk: chunk u reads entry u, and the last entry serves all
  # chunks after it, so that one entry serves every chunk and no entry (an empty
  # sequence) is RETRO[OFF]. None: they are retrieved.
  neighbors: Sequence[ChunkNeighbors] | None = None
  # tokens that retrieve for the whole prompt, which then ends where a chunk ends: its
  # last chunk finds their neighbors, the chunks before it none. None: each by itself
  query: Sequence[int] | np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class Sample:
  """A prompt and its continuation."""

  # [T] int32, prompt first; the last may complete a stop string
  tokens: np.ndarray
  prompt_length: int  # tokens of the prompt
  chunk_length: int  # m
  # one for each complete chunk; empty without retrieval
  neighbors: list[ChunkNeighbors]
  # tokens by which the first chunk is short, as the prompt was aligned
  padding: int = 0
  # of the continuation, without the stop string that ended it; None for all of it
  text: str | None = None

  @property
  def new_tokens(self) -> np.ndarray:
    """The continuation: [T - prompt_length] int32."""
    return self.tokens[self.prompt_length :]

  def chunk_bounds(self) -> list[tuple[int, int]]:
    """First token of each chunk and the one after; the last may be short."""
    m, end = self.chunk_length, len(self.tokens)
    ends = range(m - self.padding, end + m, m)
    return [(max(0, i - m), min(i, end)) for i in ends if max(0, i - m) < end]

  def chunks(self) -> list[np.ndarray]:
    """The tokens by chunk; the last may be incomplete."""
    return [self.tokens[i:j] for i, j in self.chunk_bounds()]


@dataclasses.dataclass(frozen=True)
class Drawn:
  """Event: a token of row `row`, and the text that is certain by now."""

  row: int
  token: int
  text: str


@dataclasses.dataclass(frozen=True)
class Finished:
  """Event: row `row` is finished, with the text held back until then."""

  row: int
  text: str
  sample: Sample


Event = Drawn | Finished
