# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Bits per byte of whole documents, with and without retrieval.

Borgeaud et al. 2021, section 2.6: every token of a document is scored once,
with the context its window gives; the document's UTF-8 bytes are the measure,
so tokenizers do not matter. How documents become windows and rows: `windows`.

Dimension key: B batch, C chunks, M chunk length, L = C M tokens, D documents.
"""

from collections.abc import Callable, Iterator
import dataclasses
import itertools
import math
from typing import Any

import numpy as np

from retrieval.text import chunks as chunks_lib
from retro_jax.data import pipeline, windows as windows_lib

RETRIEVALS = ('on', 'off', 'shuffled', 'oracle')

# Rows -> [B, L] nats of each target, 0 where nothing is scored.
NatsFn = Callable[[pipeline.Row], Any]


@dataclasses.dataclass(frozen=True)
class Evaluation:
  """Measurements of each document."""

  # [D] float64 negative log-likelihood of the document's tokens
  nats: np.ndarray
  tokens: np.ndarray  # [D] int64 tokens scored: all but BOS
  num_bytes: np.ndarray  # [D] int64 UTF-8 bytes
  words: np.ndarray  # [D] int64 words between whitespace
  # [n] float64 of each chunk's tokens, in the order of `windows.chunk_ids`
  chunk_nats: np.ndarray | None = None

  def take(self, chosen: np.ndarray) -> 'Evaluation':
    """The evaluation of some of the documents."""
    fields = (self.nats, self.tokens, self.num_bytes, self.words)
    return Evaluation(*(x[chosen] for x in fields))

  @property
  def bits_per_byte(self) -> float:
    """Bits that a byte of text costs."""
    return self._nats_over(self.num_bytes) / math.log(2)

  def _nats_over(self, sizes: np.ndarray) -> float:
    return float(self.nats.sum()) / sizes.sum() if sizes.any() else math.nan

  def summary(self) -> dict[str, float | int]:
    """All of it as JSON numbers; perplexities are exp of mean nats."""
    return {
      'bits_per_byte': self.bits_per_byte,
      'token_perplexity': float(np.exp(self._nats_over(self.tokens))),
      'word_perplexity': float(np.exp(self._nats_over(self.words))),
      'nats': float(self.nats.sum()),
      'documents': len(self.nats),
      'tokens': int(self.tokens.sum()),
      'bytes': int(self.num_bytes.sum()),
      'words': int(self.words.sum()),
    }


def of_documents(
  nats: np.ndarray,
  store: chunks_lib.ChunkStore,
  documents: windows_lib.Documents,
  chunk_nats: np.ndarray | None = None,
) -> Evaluation:
  """The evaluation of documents of a chunk store with nats [D]."""
  return Evaluation(
    nats,
    windows_lib.num_targets(store, documents),
    store.tokens.num_bytes[documents.index],
    store.tokens.num_words[documents.index],
    chunk_nats,
  )


def evaluate(
  nats: NatsFn,
  reader: pipeline.ChunkReader,
  *,
  max_documents: int = 0,
  **settings: Any,
) -> Evaluation:
  """Score whole documents.

  Args:
    nats: this process's rows of a batch -> nats of all rows, as `losses.batch_nll`.
    reader: of the evaluation set; its num_neighbors is k.
    max_documents: at most so many, evenly spread; 0 for all.
    **settings: other arguments of `score_windows`.

  Raises:
    ValueError: for an empty set, or settings that do not fit.
  """
  chunks = reader.stores.chunks
  documents = windows_lib.find_documents(chunks, max_documents)
  # Nats of each chunk's positions but the last, which predicts the next chunk, and
  # of the last.
  parts = np.zeros((documents.count.sum(), 2))
  for layout, _, of_rows in score_windows(nats, reader, documents, **settings):
    scores = np.asarray(of_rows, np.float64)
    scores = scores.reshape(*layout.ids.shape, -1)[layout.scored]
    parts[documents.places(layout), 0] = scores[:, :-1].sum(-1)
    parts[documents.places(layout), 1] = scores[:, -1]
  of_chunks = parts[:, 0].copy()
  of_chunks[1:] += parts[:-1, 1]  # 0 at the end of a document
  by_document = np.add.reduceat(of_chunks, documents.start)
  return of_documents(by_document, chunks, documents, of_chunks)


def score_windows(
  score: Callable[[pipeline.Row], Any],
  reader: pipeline.ChunkReader,
  documents: windows_lib.Documents,
  *,
  sequence_chunks: int,
  stride_chunks: int = 0,
  batch_size: int = 8,
  retrieval: str = 'on',
  seed: int = 0,
  process_index: int = 0,
  process_count: int = 1,
  progress: Callable[[int, int], None] | None = None,
) -> Iterator[tuple[windows_lib.Layout, pipeline.Row, Any]]:
  """Read and score documents, a batch of windows at a time.

  Args:
    sequence_chunks: chunks of a row, the longest window.
    stride_chunks: chunks between the starts of windows; 0 is half a sequence.
    batch_size: rows that `score` gets from all processes together.
    retrieval: 'on'; 'off'; 'shuffled', a control: each chunk gets the neighbors
      of a random chunk of another document; 'oracle', a diagnostic: each chunk
      gets itself with its continuation, so that all is there to be copied.
    seed: of the random chunks.
    process_count: processes that share a batch.
    progress: called with (chunks done, chunks in all).

  Yields:
    Layout, this process's rows and scores of a batch, after the next one was
    dispatched: so its rows are read while these are computed.
  """
  if batch_size < 1 or batch_size % process_count:
    raise ValueError(
      f'batch_size {batch_size}: expected a multiple of the {process_count} '
      'process(es).'
    )
  if retrieval == 'off':
    reader = dataclasses.replace(reader, num_neighbors=0)
  elif not reader.num_neighbors:
    raise ValueError(f'retrieval {retrieval!r} needs num_neighbors above 0.')
  share = batch_size // process_count
  mine = slice(process_index * share, (process_index + 1) * share)

  def score_layout(layout: windows_lib.Layout):
    ids, retrieved_by = layout.ids[mine], None
    if retrieval == 'shuffled':
      at = np.maximum(layout.owner[mine], 0)
      first, count = documents.first[at], documents.count[at]
      total = reader.stores.chunks.num_chunks
      retrieved_by = windows_lib.shuffle_chunks(ids, first, count, total, seed)
    row = reader.read(
      ids, layout.segments[mine], retrieved_by, oracle=retrieval == 'oracle'
    )
    return layout, row, score(row)

  windows = windows_lib.make_windows(
    documents, sequence_chunks, stride_chunks or max(1, sequence_chunks // 2)
  )
  layouts = windows_lib.layouts(windows, sequence_chunks, batch_size)
  batches = itertools.chain(map(score_layout, layouts), [None])
  done = 0
  for batch, _ in itertools.pairwise(batches):
    yield batch
    done += int(batch[0].scored.sum())
    if progress:
      progress(done, int(documents.count.sum()))
