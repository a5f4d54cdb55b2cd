# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Loss of continuations of texts, such as summaries of articles.

Borgeaud et al. 2021, section 3: the Curation Corpus is scored as an article,
"TL; DR:" and its summary, of which the summary alone counts. Texts are in
memory and retrieve for themselves, as in sampling: what a complete chunk retrieves is
read from its last token on, so that no text reaches what predicts it.

Dimension key: B batch, C chunks, M chunk length, L = C M tokens, N neighbors, R
neighbor length.
"""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
from typing import Any

import numpy as np

from retrieval import settings as settings_lib, tokenization
from retro_jax.data import pipeline, samples, windows as windows_lib

# A batch of rows -> [B, L] nats of each target, 0 where nothing is scored, and
# whether it is the likeliest token, True there.
ScoreFn = Callable[[pipeline.Row], tuple[Any, Any]]


@dataclasses.dataclass(frozen=True)
class Continuation:
  """A text and the first token that is scored."""

  tokens: np.ndarray  # [n] token ids, BOS first
  # the first token that is scored, at least 1; all after it are, too
  first: int


@dataclasses.dataclass(frozen=True)
class Likelihood:
  """Negative log-likelihood of a continuation after its context."""

  nats: float  # of the continuation's tokens; the log likelihood is -nats
  num_bytes: int  # of the continuation in UTF-8
  is_greedy: bool  # whether each of its tokens is the likeliest one
  # tokens at the beginning of the context that no window held; nothing read them
  num_dropped: int


@dataclasses.dataclass(frozen=True)
class Window:
  """Chunks of a text; chunks from `scored` on are scored."""

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
  stride_chunks: settings_lib.Size
  num_neighbors: int = 0  # k; 0 without retrieval
  batch_size: settings_lib.Size = 8  # most rows of a batch
  max_tokens: int = 1 << 20  # most tokens of a batch of several rows

  def __post_init__(self):
    settings_lib.check(self)
    if self.stride_chunks > self.sequence_chunks:
      most = f'at most {self.sequence_chunks}, the chunks of a sequence'
      raise settings_lib.SettingsError(
        'stride_chunks', self.stride_chunks, most
      )


def encode(
  tokenizer: tokenization.Tokenizer, context: str, continuation: str
) -> Continuation:
  """Encode context and continuation as one text; the continuation is scored.

  Both are encoded together. A token that crosses the border is scored.
  """
  encoded = tokenizer.encode(context + continuation)
  border = len(context.encode())
  first = int(np.searchsorted(encoded.offsets[:, 1], border, side='right'))
  tokens = np.concatenate([[tokenizer.bos_id], encoded.ids]).astype(np.int32)
  return Continuation(tokens, 1 + first)


def make_windows(
  text: Continuation, chunk_length: int, size: int, stride: int
) -> list[Window]:
  """Return windows that score every token once, with the longest context.

  Those of a whole text begin with it, as in evaluation. Of a continuation, the last
  one ends with the text; those before it end where it begins to score.

  Args:
    size: chunks of the longest window.
    stride: most chunks that a window scores of a longer text.

  Raises:
    ValueError: when nothing is left to be scored.
  """
  n, m = len(text.tokens), chunk_length
  if not 1 <= text.first < n:
    raise ValueError(
      f'A text of {n} tokens is to be scored from token {text.first} on; '
      f'expected one of 1..{n - 1}.'
    )
  first = (text.first - 1) // m  # whose last position predicts it
  windows, end = [], -(-n // m)
  if text.first == 1:
    whole = windows_lib.Documents(*np.array([[0], [0], [end]]))
    spans = windows_lib.make_windows(whole, size, stride)
    columns = (spans.first, spans.first + spans.skip, spans.first + spans.count)
    return [Window(*x) for x in np.stack(columns, axis=1).tolist()]
  while end > first:
    start = max(0, end - size)
    scored = max(first, start + size - stride if start else 0)
    windows.append(Window(start, scored, end))
    end = scored
  return windows


def num_row_chunks(count: int, sequence_chunks: int) -> int:
  """Chunks of the row of a text: few lengths are compiled, with little padding."""
  return min(sequence_chunks, 1 << (count - 1).bit_length())


def make_row(
  text: Continuation,
  window: Window,
  chunk_length: int,
  num_chunks: int,
  neighbors: Sequence[samples.ChunkNeighbors] = (),
  neighbor_shape: tuple[int, int] | None = None,
) -> pipeline.Row:
  """The arguments of the model for one window: arrays of [L] and [C, N, R].

  Args:
    num_chunks: C, at least those of the window.
    neighbors: those of the window's chunks, perhaps without the last.
    neighbor_shape: (N, R); None without retrieval.
  """
  m, c = chunk_length, num_chunks
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
  if neighbor_shape:
    row['neighbors'], row['neighbor_mask'] = samples.stack(
      neighbors, c, neighbor_shape
    )
  return row


def _batches(
  windows: list[tuple[int, Window]], settings: Settings
) -> Iterator[tuple[int, list[tuple[int, Window]]]]:
  """Windows in rows of equal length: yields the chunks of a row, and its windows."""
  by_size: dict[int, list[tuple[int, Window]]] = {}
  for i, window in windows:
    count = num_row_chunks(window.end - window.start, settings.sequence_chunks)
    by_size.setdefault(count, []).append((i, window))
  for count, same in sorted(by_size.items()):
    most = settings.max_tokens // (count * settings.chunk_length)
    size = max(1, min(settings.batch_size, most))
    for low in range(0, len(same), size):
      yield count, same[low : low + size]


def _find(
  texts, batch, settings, retrieve
) -> list[list[samples.ChunkNeighbors]]:
  """Neighbors of the complete chunks of each window; equal chunks retrieve once."""
  if retrieve is None:
    return [[]] * len(batch)
  m, by_window = settings.chunk_length, []
  for i, window in batch:
    end = min(window.end, len(texts[i].tokens) // m)
    tokens = texts[i].tokens[window.start * m : end * m]
    by_window.append(list(tokens.reshape(-1, m)))
  chunks = {x.tobytes(): x for one in by_window for x in one}
  retrieved = (
    retrieve([*chunks.values()], settings.num_neighbors) if chunks else []
  )
  by_chunk = dict(zip(chunks, retrieved, strict=True))
  return [[by_chunk[x.tobytes()] for x in one] for one in by_window]


def make_batch(
  texts: Sequence[Continuation],
  batch: list[tuple[int, Window]],
  num_chunks: int,
  settings: Settings,
  retrieve: samples.RetrieveFn | None = None,
) -> pipeline.Row:
  """Read neighbors, and return the rows of windows, each after the text's number.

  Empty rows are added up to a power of two: few numbers of rows are compiled.

  Args:
    num_chunks: of each row.
    retrieve: as of `score`.
  """
  m, shape = settings.chunk_length, None
  if retrieve is not None and settings.num_neighbors:
    shape = settings.num_neighbors, settings.neighbor_length
  read = _find(texts, batch, settings, retrieve if shape else None)
  rows = [
    make_row(texts[i], window, m, num_chunks, neighbors, shape)
    for (i, window), neighbors in zip(batch, read, strict=True)
  ]
  missing = (1 << (len(rows) - 1).bit_length()) - len(rows)
  rows += [{name: np.zeros_like(x) for name, x in rows[0].items()}] * missing
  return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def score(
  score_tokens: ScoreFn,
  texts: Sequence[Continuation],
  settings: Settings,
  *,
  retrieve: samples.RetrieveFn | None = None,
  progress: Callable[[int, int], None] | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Score continuations.

  Args:
    retrieve: finds neighbors of chunks; None is RETRO[OFF], or a baseline.
    progress: called with (windows done, windows in all).

  Returns:
    nats: [texts] float64.
    is_greedy: [texts] whether all of its tokens are the likeliest.
    num_dropped: [texts] int64 tokens before the first window.

  Raises:
    ValueError: for a text with nothing to score.
  """
  nats, greedy = np.zeros(len(texts)), np.ones(len(texts), bool)
  m = settings.chunk_length
  sizes = m, settings.sequence_chunks, settings.stride_chunks
  by_text = [make_windows(text, *sizes) for text in texts]
  windows = [
    (i, window) for i, of_text in enumerate(by_text) for window in of_text
  ]
  done = 0
  for count, batch in _batches(windows, settings):
    columns = make_batch(texts, batch, count, settings, retrieve)
    owners = [i for i, _ in batch]
    of_tokens, likeliest = map(np.asarray, score_tokens(columns))
    sums = of_tokens.sum(axis=-1, dtype=np.float64)
    np.add.at(nats, owners, sums[: len(batch)])
    np.logical_and.at(greedy, owners, likeliest.all(axis=-1)[: len(batch)])
    done += len(batch)
    if progress:
      progress(done, len(windows))
  starts = [min(window.start for window in of_text) for of_text in by_text]
  return nats, greedy, np.array(starts, np.int64) * m
