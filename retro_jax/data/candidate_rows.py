# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows that teach a retriever: chunks, some of which ask for candidates.

The pipeline chooses chunks; `CandidateReader.complete` reads them with the
candidates of the index that serves, right before a step. So the order of the data
does not depend on the index.

Dimension key: B batch, C chunks, Q queries of a row, K candidates, T WordPiece ids.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
import dataclasses
import functools

import numpy as np

from retrieval.store import manifests
from retro_jax.data import pipeline
from retro_jax.nn import candidates

SPLITS = ('train', 'valid')


@dataclasses.dataclass(frozen=True)
class Source:
  """Row i: `sequence_chunks` chunk ids, and a mask of chunks that text follows."""

  sequences: pipeline.Sequences
  split: str  # one of `SPLITS`

  def __len__(self) -> int:
    return len(self.sequences)

  def __getitem__(self, i: int) -> pipeline.Row:
    row = self.sequences[i]
    m = self.sequences.reader.chunk_length
    return {
      'chunk_ids': self.sequences.ids(i),
      'countable': candidates.countable(row, m),
      'split': np.int32(SPLITS.index(self.split)),
    }

  def __repr__(self) -> str:
    return f'{self.sequences!r} of {self.split}'


def choose(
  row: pipeline.Row, rng: np.random.Generator, queries: int
) -> pipeline.Row:
  """Draw at most `queries` of the countable chunks: `asked` [Q], -1 for none."""
  (countable,) = np.nonzero(row['countable'])
  drawn = np.sort(rng.permutation(countable)[:queries])
  asked = np.full(queries, -1, np.int32)
  asked[: len(drawn)] = drawn
  fields = {name: row[name] for name in ('chunk_ids', 'split')}
  return fields | {'asked': asked}


def make_dataset(
  reader: pipeline.ChunkReader,
  split: str,
  *,
  queries: int,
  sequence_chunks: int,
  batch_size: int,
  process_count: int = 1,
  **settings,
) -> Iterable[pipeline.Row]:
  """Batches for `CandidateReader.complete`; 'train' never ends.

  Args:
    reader: of the split, without neighbors.
    queries: chunks of a row that ask for candidates.
    **settings: of `pipeline.batches`.

  Raises:
    ValueError: for a row without room for as many queries.
  """
  train = split == 'train'
  multiple_of = process_count if train else batch_size
  sequences = pipeline.Sequences(reader, sequence_chunks, multiple_of)
  return pipeline.batches(
    Source(sequences, split),
    batch_size=batch_size,
    train=train,
    process_count=process_count,
    choose=functools.partial(choose, queries=queries),
    **settings,
  )


@dataclasses.dataclass(frozen=True)
class CandidateReader:
  """Reads batches with the candidates of an index."""

  # split -> reader whose num_neighbors is K
  readers: Mapping[str, pipeline.ChunkReader]
  token_ids: Callable[[Sequence[str]], list[list[int]]]  # of the embedder
  max_length: int  # T; a longer text is cut before its last id, [SEP]

  @property
  def fingerprint(self) -> str:
    """Hash of the candidates and of how they are read."""
    return manifests.fingerprint([x.fingerprint for x in self.readers.values()])

  def complete(self, batch: pipeline.Row) -> pipeline.Row:
    """Read a batch of `make_dataset`; its rows are of one split.

    Returns:
      The arrays of `pipeline.ChunkReader.read`, and
      asked: [B, Q] int32. Chunks of the row that ask, -1 for none.
      query_ids, query_lengths: [B, Q, T] and [B, Q] int32.
      candidate_ids, candidate_lengths: [B, Q, K, T] and [B, Q, K] int32.
      candidate_valid: [B, Q, K] bool.
    """
    reader = self.readers[SPLITS[int(batch['split'][0])]]
    ids, asked = batch['chunk_ids'], batch['asked']
    asking = np.take_along_axis(ids, np.maximum(asked, 0), -1)
    asking = np.where(asked >= 0, asking, -1)
    stores = reader.stores
    candidates = stores.neighbors.ids(np.maximum(asking, 0))
    candidates = candidates[..., : reader.num_neighbors]
    candidates = np.where(asking[..., None] >= 0, candidates, -1)
    row = reader.read(ids) | {
      'asked': asked,
      'candidate_valid': candidates >= 0,
    }
    for name, chunks, numbers in (
      ('query', stores.chunks, asking),
      ('candidate', stores.datastore, candidates),
    ):
      row |= self._texts(name, chunks.texts, numbers)
    return row

  def _texts(
    self, name: str, texts: Callable[..., list[str]], ids: np.ndarray
  ) -> pipeline.Row:
    """WordPiece ids of chunks, one id 0 where there is no chunk."""
    flat = ids.reshape(-1)
    tokens = self.token_ids(texts(flat))
    rows = np.zeros((len(flat), self.max_length), np.int32)
    lengths = np.ones(len(flat), np.int32)
    for i, (number, pieces) in enumerate(zip(flat, tokens, strict=True)):
      if number >= 0:
        if len(pieces) > self.max_length:
          pieces = [*pieces[: self.max_length - 1], pieces[-1]]
        rows[i, : len(pieces)] = pieces
        lengths[i] = len(pieces)
    return {
      f'{name}_ids': rows.reshape(*ids.shape, -1),
      f'{name}_lengths': lengths.reshape(ids.shape),
    }
