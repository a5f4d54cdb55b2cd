# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Training examples: rows of chunks with their precomputed neighbors.

Borgeaud et al. 2021, section 2.2. A row is l consecutive chunks of m tokens,
documents one after another; segment ids keep them apart. Neighbors are read
from the datastore as spans of r tokens, never copied.

Dimension key: C chunks (l), M chunk length, L = C M tokens, N neighbors (k), R
neighbor length.
"""

from collections.abc import Callable, Iterable, Mapping
import dataclasses
import functools
import os
import signal
import types
from typing import Any

from jaxtyping import Int
import numpy as np

from retrieval.index import neighbor_store
from retrieval.store import children, manifests
from retrieval.text import chunks as chunks_lib

_READ_THREADS = 2
_READ_AHEAD = 32  # batches; Grain's default would hold hundreds

Row = dict[str, np.ndarray]


def without_neighbors(row: Mapping[str, Any]) -> dict[str, Any]:
  """Return a row without its neighbors."""
  return {k: x for k, x in row.items() if not k.startswith('neighbor')}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChunkReader:
  """Reads rows of chunks; only paths and settings are pickled."""

  chunks: str | os.PathLike  # path of the chunk store to read
  neighbors: str | os.PathLike = ''  # path of its neighbors
  datastore: str | os.PathLike = ''  # path of the chunks that these name
  num_neighbors: int = 0  # k, at most as many as are stored; 0 reads none
  neighbor_length: int = 128  # r; 2m is a chunk and its continuation
  neighbor_part: str = 'full'  # of `chunks.PARTS`; the rest is masked
  skipped_neighbors: int = 0  # the best ones that are not read

  def __getstate__(self) -> dict[str, Any]:
    state = dict(self.__dict__)
    state.pop('stores', None)
    return state

  @functools.cached_property
  def stores(self) -> types.SimpleNamespace:
    """The open stores: chunks, and neighbors and datastore if they are read.

    ValueError where they do not belong together or hold too few neighbors.
    """
    chunks = chunks_lib.ChunkStore(self.chunks)
    if not self.num_neighbors:
      return types.SimpleNamespace(chunks=chunks)
    datastore = chunks
    if os.fspath(self.datastore) != os.fspath(self.chunks):
      datastore = chunks_lib.ChunkStore(self.datastore)
    neighbors = neighbor_store.NeighborStore(self.neighbors, chunks, datastore)
    last = self.skipped_neighbors + self.num_neighbors
    if last > neighbors.num_neighbors:
      raise ValueError(
        f'{neighbors.path}: num_neighbors {last} is more than '
        f'the {neighbors.num_neighbors} stored for each chunk.'
      )
    return types.SimpleNamespace(
      chunks=chunks, neighbors=neighbors, datastore=datastore
    )

  @property
  def chunk_length(self) -> int:
    """The chunk length m."""
    return self.stores.chunks.chunk_length

  @property
  def num_chunks(self) -> int:
    """Number of chunks to read."""
    return self.stores.chunks.num_chunks

  @property
  def fingerprint(self) -> str:
    """Hash of the data and of how they are read."""
    fields = {
      'chunks': self.stores.chunks.fingerprint,
      'num_neighbors': self.num_neighbors,
    }
    if self.num_neighbors:
      fields |= {
        'neighbors': self.stores.neighbors.store.fingerprint,
        'neighbor_length': self.neighbor_length,
        'neighbor_part': self.neighbor_part,
        'skipped_neighbors': self.skipped_neighbors,
      }
    return manifests.fingerprint(fields)

  def read(
    self,
    ids: Int[np.ndarray, '*batch C'],
    segments: Int[np.ndarray, '*batch C'] | None = None,
    retrieved_by: Int[np.ndarray, '*batch C'] | None = None,
    oracle: bool = False,
  ) -> Row:
    """Read rows of chunks.

    Args:
      ids: [..., C] chunk ids, -1 for padding.
      segments: [..., C] what belongs together, from 1 (0 for padding); by
        default adjacent chunks of one document.
      retrieved_by: [..., C] chunks whose neighbors are read instead of each
        chunk's, less those from the chunk's document; -1 reads none.
      oracle: True gives every chunk one neighbor, itself with its continuation:
        what the model is to predict. A diagnostic of copying, never a score.

    Returns:
      tokens: [..., L] int32.
      targets: [..., L] int32, the next token of the same document.
      loss_mask: [..., L] bool, False where there is no next token.
      segment_ids: [..., L] int32, 0 for padding.
      neighbors: [..., C, N, R] int32, unless num_neighbors is 0.
      neighbor_mask: [..., C, N, R] bool, under the same condition.
    """
    ids = np.asarray(ids, np.int64)
    m, flat = self.chunk_length, (*ids.shape[:-1], -1)
    tokens, mask = self.stores.chunks.gather(ids, m + 1)
    if segments is None:
      segments = self._document_runs(ids)
    segment_ids = np.where(mask[..., :m], segments[..., None], 0)
    row = {
      'tokens': tokens[..., :m].reshape(flat),
      'targets': tokens[..., 1:].reshape(flat),
      'loss_mask': mask[..., 1:].reshape(flat),
      'segment_ids': segment_ids.reshape(flat).astype(np.int32),
    }
    if self.num_neighbors:
      row['neighbors'], row['neighbor_mask'] = (
        self.stores.chunks.gather(ids[..., None], self.neighbor_length)
        if oracle
        else self._read_neighbors(ids, retrieved_by)
      )
    return row

  def _document_runs(self, ids):
    """Numbers the runs of chunks of one document: [..., C] from 1."""
    documents = self.stores.chunks.documents(np.maximum(ids, 0))
    documents = np.where(ids >= 0, documents, -1)
    return np.cumsum(np.diff(documents, prepend=-1) != 0, axis=-1)

  def _read_neighbors(self, ids, retrieved_by):
    stores, first = self.stores, self.skipped_neighbors
    asking = ids if retrieved_by is None else np.asarray(retrieved_by)
    neighbors = stores.neighbors.ids(np.maximum(asking, 0))
    neighbors = neighbors[..., first : first + self.num_neighbors]
    present = ((ids >= 0) & (asking >= 0))[..., None] & (neighbors >= 0)
    if retrieved_by is not None:  # The store's filter knew another document.
      hashes = stores.chunks.document_hashes(np.maximum(ids, 0))[..., None]
      present &= (
        stores.datastore.document_hashes(np.maximum(neighbors, 0)) != hashes
      )
    neighbors = np.where(present, neighbors, -1)
    return stores.datastore.gather(
      neighbors, self.neighbor_length, self.neighbor_part
    )


@dataclasses.dataclass(frozen=True)
class Sequences:
  """Row i is chunks [i l, (i + 1) l): a random-access source for Grain."""

  reader: ChunkReader  # of the chunks
  sequence_chunks: int  # l
  # empty rows are added, so that all processes have equally many whole batches
  multiple_of: int = 1

  def __len__(self) -> int:
    rows = -(-self.reader.num_chunks // self.sequence_chunks)
    return -(-rows // self.multiple_of) * self.multiple_of

  def __getitem__(self, i: int) -> Row:
    first = int(i) * self.sequence_chunks
    ids = np.arange(first, first + self.sequence_chunks)
    return self.reader.read(np.where(ids < self.reader.num_chunks, ids, -1))

  def __repr__(self) -> str:
    return (
      f'Sequences({self.reader.fingerprint}, {self.sequence_chunks}, '
      f'{self.multiple_of})'
    )


def make_dataset(
  reader: ChunkReader,
  *,
  sequence_chunks: int,
  batch_size: int,
  train: bool,
  process_count: int = 1,
  **settings,
) -> Iterable[Row]:
  """Batches of `Sequences`; the other arguments are those of `batches`."""
  multiple_of = process_count if train else batch_size
  return batches(
    Sequences(reader, sequence_chunks, multiple_of),
    batch_size=batch_size,
    train=train,
    process_count=process_count,
    **settings,
  )


def batches(
  source: Any,
  *,
  batch_size: int,
  train: bool,
  seed: int = 0,
  num_workers: int = 0,
  process_index: int = 0,
  process_count: int = 1,
  choose: Callable[[Row, np.random.Generator], Row] | None = None,
) -> Iterable[Row]:
  """Batches of the rows of a random-access source, [batch_size / process_count, ...].

  Args:
    train: shuffled anew in every pass and without end; otherwise one pass in
      order, the last batch filled with empty rows.
    num_workers: processes that read ahead; 0 reads in this one. absl flags must
      be parsed if there are any.
    process_count: processes that share a batch.
    choose: changes a row by random numbers, which differ in every pass.

  Raises:
    ValueError: for a batch that cannot be shared.
  """
  if batch_size % process_count:
    raise ValueError(
      f'batch_size {batch_size}: expected a multiple of the {process_count} '
      'process(es).'
    )
  import grain  # a second, with Orbax; who only reads chunks goes without

  rows = grain.MapDataset.source(source).seed(seed)
  if train:
    rows = rows.shuffle()
  rows = rows[process_index::process_count]
  if train:
    rows = rows.repeat()
  if choose:
    rows = rows.random_map(choose)
  rows = rows.batch(batch_size // process_count, drop_remainder=True)
  options = grain.ReadOptions(
    num_threads=_READ_THREADS, prefetch_buffer_size=_READ_AHEAD
  )
  dataset = rows.to_iter_dataset(options)
  if num_workers:
    children.start_tracker()  # workers hand batches over in shared memory
    options = grain.MultiprocessingOptions(num_workers=num_workers)
    dataset = dataset.mp_prefetch(options, worker_init_fn=_start_worker)
  return dataset


def _start_worker(index: int, count: int) -> None:
  """Leave all signals to the trainer: it may save before it ends."""
  del index, count
  children.exit_with_parent((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
