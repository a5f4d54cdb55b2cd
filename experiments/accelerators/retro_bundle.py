# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Pack the data of RETRO into one file, for machines without the data pipeline.

  python -m experiments.accelerators.retro_bundle --config=configs/<name>.py \
    --workdir=DIR --splits=test,fresh --sources=dense,bm25

Reads what experiments.prepare made and writes DIR/bundle.npz: the chunks of the
training documents with their neighbors, and of each split the windows that
experiments.evaluate scores. `rows_of` puts rows together on the device, as
`pipeline.ChunkReader.read` does.

Dimension key: B rows, C chunks of a row, M tokens of a chunk, L = C M, N neighbors, R
tokens of a neighbor, n chunks of a split, D documents.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import pathlib
from typing import Any

from absl import flags
import jax
import jax.numpy as jnp
import numpy as np

from experiments.engine import command
from experiments.retro import config as config_lib
from retro_jax.data import (
  folder as retro_data,
  pipeline,
  windows as windows_lib,
)
from retro_jax.trained import loading

FILE = 'bundle.npz'
TABLE = 'chunks', 'lengths', 'documents'
Arrays = Mapping[str, jax.Array | np.ndarray]


def chunks_of(reader: pipeline.ChunkReader) -> dict[str, np.ndarray]:
  """Chunks of a split.

  Returns:
    chunks: [n, M] uint16.
    lengths: [n] uint8, tokens of each.
    documents: [n] int32; a chunk's continuation is the next of its document.
  """
  chunks = reader.stores.chunks
  ids = np.arange(chunks.num_chunks)
  tokens, mask = chunks.gather(ids, chunks.chunk_length)
  return {
    'chunks': tokens.astype(np.uint16),
    'lengths': mask.sum(-1).astype(np.uint8),
    'documents': chunks.documents(ids).astype(np.int32),
  }


def neighbors_of(
  config: config_lib.Config,
  data: retro_data.DataFolder,
  split: str,
  source: str,
) -> np.ndarray:
  """All stored neighbors of a split's chunks: [n, N] int32, -1 for none."""
  data = dataclasses.replace(data, source=source)
  reader = loading.chunk_reader(config, data, split, config.neighbors.stored)
  stores = reader.stores
  found = stores.neighbors.ids(np.arange(stores.chunks.num_chunks))
  return found.astype(np.int32)


def windows_of(
  reader: pipeline.ChunkReader, sequence_chunks: int, batch_size: int, seed: int
) -> dict[str, np.ndarray]:
  """Rows that score every token of a split once, as `evaluate.evaluate` does.

  Returns:
    ids: [B, C] int32 chunks, -1 for padding.
    segments: [B, C] int32, 0 for padding.
    owner: [B, C] int32 document, -1 where a chunk is not scored.
    shuffled: [B, C] int32 chunk whose neighbors are read in its place.
    bytes: [D] int64.
  """
  chunks = reader.stores.chunks
  documents = windows_lib.find_documents(chunks)
  windows = windows_lib.make_windows(
    documents, sequence_chunks, max(1, sequence_chunks // 2)
  )
  rows = [*windows_lib.layouts(windows, sequence_chunks, batch_size)]
  ids, segments, owner, scored = (
    np.concatenate([getattr(row, name) for row in rows])
    for name in ('ids', 'segments', 'owner', 'scored')
  )
  at = np.maximum(owner, 0)
  shuffled = windows_lib.shuffle_chunks(
    ids, documents.first[at], documents.count[at], chunks.num_chunks, seed
  )
  found = {
    'ids': ids,
    'segments': segments,
    'owner': np.where(scored, owner, -1),
    'shuffled': shuffled,
  }
  found = {name: x.astype(np.int32) for name, x in found.items()}
  return found | {'bytes': chunks.tokens.num_bytes[documents.index]}


def gather(
  table: Arrays, ids: jax.Array, length: int
) -> tuple[jax.Array, jax.Array]:
  """Tokens of chunks with their continuations, and their mask; -1 is empty.

  Args:
    table: arrays of `chunks_of`.
    ids: [...] chunks.
    length: R, at most 2 M.
  """
  parts, masks = [], []
  there, last = ids >= 0, len(table['lengths']) - 1
  document = table['documents'][jnp.maximum(ids, 0)]
  for at in (ids, ids + 1):
    there &= (at <= last) & (table['documents'][at.clip(0, last)] == document)
    tokens = table['chunks'][at.clip(0, last)].astype(jnp.int32)
    count = jnp.where(there, table['lengths'][at.clip(0, last)], 0)
    mask = jnp.arange(tokens.shape[-1]) < count[..., None]
    parts.append(jnp.where(mask, tokens, 0))
    masks.append(mask)
  found = (jnp.concatenate(x, -1)[..., :length] for x in (parts, masks))
  return tuple(found)


def rows_of(
  table: Arrays,
  ids: jax.Array,
  segments: jax.Array | None,
  found: jax.Array | None,
  length: int,
) -> dict[str, jax.Array]:
  """Rows as of `pipeline.ChunkReader.read`, to be traced.

  Args:
    table: arrays of `chunks_of`, also those of the neighbors.
    ids: [B, C] chunks, -1 for padding.
    segments: [B, C]; None: runs of one document.
    found: [B, C, N] neighbors, -1 for none; None for retrieval off.
    length: R, tokens of a neighbor.
  """
  m = table['chunks'].shape[-1]
  tokens, mask = gather(table, ids, m + 1)
  if segments is None:
    documents = jnp.where(ids >= 0, table['documents'][jnp.maximum(ids, 0)], -1)
    segments = jnp.cumsum(jnp.diff(documents, prepend=-1) != 0, axis=-1)
  row = {
    'tokens': tokens[..., :m],
    'targets': tokens[..., 1:],
    'loss_mask': mask[..., 1:],
    'segment_ids': jnp.where(mask[..., :m], segments[..., None], 0),
  }
  row = {name: x.reshape(len(ids), -1) for name, x in row.items()}
  if found is not None:
    found = jnp.where((ids >= 0)[..., None], found, -1)
    row['neighbors'], row['neighbor_mask'] = gather(table, found, length)
  return row


def pack(
  config: config_lib.Config,
  data: retro_data.DataFolder,
  splits: Sequence[str],
  sources: Sequence[str],
  batch_size: int = 8,
) -> dict[str, np.ndarray]:
  """All arrays of a bundle, by split and name: 'test/ids'."""
  found = {}
  for split in ('train', *splits):
    reader = loading.chunk_reader(config, data, split, 0)
    arrays = chunks_of(reader)
    for source in sources:
      arrays[source] = neighbors_of(config, data, split, source)
    if split != 'train':
      arrays |= windows_of(
        reader, config.sequence_chunks, batch_size, config.seed
      )
    found |= {f'{split}/{name}': x for name, x in arrays.items()}
  return found


def unpack(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
  """Arrays of `pack` by split.

  Returns:
    Of each split its arrays, and as 'table' the chunks of all splits, one after
    another: ids of chunks count through it.
  """
  splits: dict[str, Any] = {}
  for name, x in arrays.items():
    split, _, name = name.partition('/')
    splits.setdefault(split, {})[name] = x
  start, tables = 0, []
  for number, split in enumerate(splits.values()):
    table = {name: split[name] for name in TABLE}
    table['documents'] = table['documents'] + np.int32(number << 24)
    tables.append(table)
    for name in ('ids', 'shuffled'):
      if name in split:
        split[name] = np.where(split[name] < 0, -1, split[name] + start)
    split['start'] = start
    start += len(table['lengths'])
  return {
    **splits,
    'table': {k: np.concatenate([x[k] for x in tables]) for k in TABLE},
  }


def main(config: config_lib.Config, workdir: str) -> None:
  """Write the file."""
  data = retro_data.DataFolder.of(config, workdir)
  splits, sources = flags.FLAGS.splits, flags.FLAGS.sources
  found = pack(config, data, splits, sources)
  path = pathlib.Path(workdir) / FILE
  path.parent.mkdir(parents=True, exist_ok=True)
  np.savez_compressed(path, **found)
  print(f'{path}: {path.stat().st_size / 1e6:.1f} MB')


def _define_flags() -> None:
  flags.DEFINE_list('splits', ['test'], 'Splits to evaluate on.')
  flags.DEFINE_list('sources', ['dense'], 'Sources of neighbors.')


if __name__ == '__main__':
  command.main(main, config_lib.Config, _define_flags)
