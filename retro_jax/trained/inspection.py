# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The loss of each token of a text, and the effect of its neighbors on it."""

from collections.abc import Callable
import dataclasses
import functools

import numpy as np

from retrieval import tokenization
from retro_jax.data import samples
from retro_jax.decoding import growing_text
from retro_jax.evaluation import attribution, leakage
from retro_jax.trained import loading, passage as passages
from retro_jax.views import page as page_lib


def _neighbor(
  chunk: np.ndarray,
  following: np.ndarray,
  found: samples.ChunkNeighbors,
  n: int,
  tokenizer: tokenization.Tokenizer,
) -> page_lib.Neighbor:
  """A neighbor without its attention and worth."""
  tokens, mask = found.tokens[n : n + 1], found.mask[n : n + 1]
  after = leakage.SuffixAutomaton(following.tolist())
  start, size = after.longest_run(tokens[mask].tolist())
  return page_lib.Neighbor(
    id=int(found.ids[n]),
    title=found.titles[n],
    distance=-float(found.scores[n]),
    overlap=leakage.overlap(chunk, tokens, mask, tokenizer.bos_id),
    pieces=growing_text.pieces(tokenizer.decode, tokens[mask]),
    shared=(start, start + size),
  )


def _chunks(
  passage: passages.Passage,
  chunk_length: int,
  tokenizer: tokenization.Tokenizer,
) -> list[page_lib.Chunk]:
  m, chunks = chunk_length, []
  for c, found in enumerate(passage.found):
    start = c * m
    chunk = passage.tokens[start : start + m]
    following = passage.tokens[start + m : start + 2 * m]
    there = found.mask.any(-1) if len(chunk) == m else ()
    neighbors = [
      _neighbor(chunk, following, found, int(n), tokenizer)
      for n in np.flatnonzero(there)
    ]
    overlap = float(passage.overlaps[c])
    chunks.append(page_lib.Chunk(start, start + len(chunk), neighbors, overlap))
  return chunks


def inspect(
  trained: loading.TrainedRetro,
  passage: passages.Passage,
  *,
  explain: bool = True,
  progress: Callable[[int, int], None] | None = None,
) -> page_lib.Page:
  """Score each token of a passage, and explain its neighbors' effect.

  Args:
    trained: a RETRO, or without `explain` a baseline.
    explain: whether to measure each neighbor's attention and worth, which costs
      a forward pass for each neighbor.
    progress: called with (chunks done, chunks in all).

  Raises:
    ValueError: for a baseline that shall explain neighbors.
  """
  model, tokenizer = trained.model, trained.data.tokenizer
  m = model.config.chunk_length
  if explain and not model.config.cca_layers:
    raise ValueError(
      'This model reads no neighbors; expected a RETRO, not its baseline.'
    )
  nats = functools.partial(loading.batch_nll, model, trained.params)
  size = len(passage.tokens)
  page = page_lib.Page(
    title=passage.title,
    pieces=['', *growing_text.pieces(tokenizer.decode, passage.tokens[1:])],
    on=[0.0] * size,
    off=[0.0] * size,
    repeated=[0] * size,
    chunks=_chunks(passage, m, tokenizer),
    num_bytes=len(tokenizer.decode(passage.tokens[1:]).encode()),
    num_compared=passage.num_compared,
    explained=explain,
  )
  for window in passages.windows(passage, m, trained.config.sequence_chunks):
    _score(page, window, nats, m)
    if explain:
      _explain(page, window, model, trained.params, nats)
    if progress:
      progress(window.first + window.count, len(page.chunks))
  return page


def _score(page, window, nats, chunk_length) -> None:
  """Set the losses and repetitions of the chunks that one window scores."""
  m, row = chunk_length, window.row
  bare = {k: v for k, v in row.items() if not k.startswith('neighbor')}
  base = window.first * m
  # Position i scores token i + 1. The window before scored the first token of
  # this one, with its whole context.
  start = window.skip * m
  scored = [i for i in np.flatnonzero(row['loss_mask'][0]) if i >= start]
  off = np.asarray(nats(bare))[0]
  on = np.asarray(nats(row))[0] if row['neighbor_mask'].any() else off
  for values, found in ((page.on, on), (page.off, off)):
    for i in scored:
      values[base + i + 1] = float(found[i])
  repeated = attribution.repeated(row, m)[0]
  for i in range(start, window.count * m):  # the window before ended there
    if base + i < len(page.repeated):
      page.repeated[base + i] = int(repeated[i])


def _explain(page, window, model, params, nats) -> None:
  """Set attention and worth of the neighbors that one window's chunks read."""
  m, row = model.config.chunk_length, window.row
  shares = attribution.attention_shares(model, params, row).mean(axis=0)[0]
  gains = attribution.gains(nats, row, m)
  # The neighbors of the last chunk of context are read by what is scored.
  for c in range(max(window.skip - 1, 0), window.count):
    chunk = page.chunks[window.first + c]
    there = np.flatnonzero(row['neighbor_mask'][0, c].any(-1)).tolist()
    for i, (n, neighbor) in enumerate(
      zip(there, chunk.neighbors, strict=False)  # an incomplete one shows none
    ):
      chunk.neighbors[i] = dataclasses.replace(
        neighbor, attention=float(shares[c, n]), gain=float(gains[c, n])
      )
