# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Loss of given continuations of given texts, such as summaries of articles.

Borgeaud et al. 2021, section 3: the Curation Corpus is scored as an article,
"TL; DR:" and its summary, of which the summary alone counts. Texts are in
memory and retrieve for themselves, as in sampling.

Dimension key: B batch, C chunks, M chunk length, L = C M tokens, N neighbors, R
neighbor length.
"""

from collections.abc import Callable, Sequence
import dataclasses
import itertools

import numpy as np

from retro_jax.data import pipeline, samples

# A batch of rows -> [B] nats of its targets.
NatsFn = Callable[[pipeline.Row], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Continuation:
  """A text of which a part is scored."""

  tokens: np.ndarray  # [n] token ids, BOS first
  # the first token that is scored, at least 1; all after it are, too
  first: int


@dataclasses.dataclass(frozen=True)
class Window:
  """Chunks of a text, of which those from `scored` on are scored."""

  start: int
  scored: int
  end: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
  """Sizes of the rows that texts are cut into."""

  chunk_length: int  # m
  neighbor_length: int  # r
  sequence_chunks: int  # longest window
  # most chunks that one window scores where a text is longer than it; what it
  # scores has the rest as context
  stride_chunks: int
  num_neighbors: int = 0  # k; 0 without retrieval
  batch_size: int = 8  # rows of a batch

  def __post_init__(self):
    """Check the ranges."""
    if not 1 <= self.stride_chunks <= self.sequence_chunks:
      raise ValueError(
        f'stride of {self.stride_chunks} chunks: expected 1..'
        f'{self.sequence_chunks}, the chunks of a sequence.'
      )
    if self.batch_size < 1:
      raise ValueError(f'batch_size {self.batch_size}: expected >= 1.')


def make_windows(text: Continuation, settings: Settings) -> list[Window]:
  """Windows that score every token once, each with what context there is.

  The last one ends with the text; those before it end where it begins to score.

  Raises:
    ValueError: when nothing is left to be scored.
  """
  n, m = len(text.tokens), settings.chunk_length
  if not 1 <= text.first < n:
    raise ValueError(
      f'A text of {n} tokens is to be scored from token {text.first} on; '
      f'expected one of 1..{n - 1}.'
    )
  first = (text.first - 1) // m  # whose last position predicts it
  context = settings.sequence_chunks - settings.stride_chunks
  windows, end = [], -(-n // m)
  while end > first:
    start = max(0, end - settings.sequence_chunks)
    scored = max(first, start + context if start else 0)
    windows.append(Window(start, scored, end))
    end = scored
  return windows


def make_row(
  text: Continuation,
  window: Window,
  settings: Settings,
  retrieve: samples.RetrieveFn | None = None,
) -> pipeline.Row:
  """The arguments of the model for one window: arrays of [L] and [C, N, R]."""
  m, c = settings.chunk_length, settings.sequence_chunks
  low, high = window.start * m, min(window.end * m, len(text.tokens))
  tokens, targets = np.zeros((2, c * m), np.int32)
  tokens[: high - low] = text.tokens[low:high]
  following = text.tokens[low + 1 : high + 1]
  targets[: len(following)] = following
  position = low + np.arange(c * m)
  scored = (position >= window.scored * m) & (position + 1 >= text.first)
  row = {
    'tokens': tokens,
    'targets': targets,
    'loss_mask': scored & (np.arange(c * m) < len(following)),
    'segment_ids': (np.arange(c * m) < high - low).astype(np.int32),
  }
  if retrieve is None or not settings.num_neighbors:
    return row
  shape = settings.num_neighbors, settings.neighbor_length
  complete = (high - low) // m
  chunks = list(tokens[: complete * m].reshape(complete, m))
  found = retrieve(chunks, settings.num_neighbors) if chunks else []
  row['neighbors'], row['neighbor_mask'] = samples.stack(found, c, shape)
  return row


def score(
  nats: NatsFn,
  texts: Sequence[Continuation],
  settings: Settings,
  *,
  retrieve: samples.RetrieveFn | None = None,
  progress: Callable[[int, int], None] | None = None,
) -> np.ndarray:
  """Score continuations.

  Args:
    nats: batch of rows -> [B] nats of the rows' targets.
    retrieve: finds neighbors of chunks; None is RETRO[OFF], or a baseline.
    progress: called with (texts done, texts in all).

  Returns:
    [texts] float64 nats.

  Raises:
    ValueError: for a text with nothing to score.
  """
  total, size = np.zeros(len(texts)), settings.batch_size
  rows = (
    (i, make_row(text, window, settings, retrieve))
    for i, text in enumerate(texts)
    for window in make_windows(text, settings)
  )
  while batch := list(itertools.islice(rows, size)):
    owners, stacked = zip(*batch, strict=True)
    columns = {}
    for name, first in stacked[0].items():
      columns[name] = np.zeros((size, *first.shape), first.dtype)
      columns[name][: len(batch)] = [row[name] for row in stacked]
    found = np.asarray(nats(columns), np.float64)[: len(batch)]
    np.add.at(total, list(owners), found)
    if progress:
      progress(owners[-1] + 1, len(texts))
  return total
