# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The passages of several folders as one.

Ids run through the passages of the first folder, then through those of the next. Ids of
documents are FOLDER:ID, with a name of the folder.
"""

from collections.abc import Iterator, Sequence
import os
import pathlib

import numpy as np

from retrieval.readers import base
from retrieval.store import array_store
from retrieval.text import (
  blocks as blocks_lib,
  chunks as chunks_lib,
  columns,
  passages,
  tokens as tokens_lib,
)


def names_of(folders: Sequence[str | os.PathLike]) -> list[str]:
  """Return the last parts of each folder's path that no other folder has.

  Parts at the end of all paths are left out: a and b of a/data and b/data. ValueError
  where two are the same folder.
  """
  paths = [pathlib.Path(x).absolute().parts for x in folders]
  while len(paths) > 1 and len({x[-1:] for x in paths}) == 1 and paths[0]:
    paths = [x[:-1] for x in paths]
  names = unique_ends(paths)
  if '' in names:
    raise ValueError(
      f'{[*map(str, folders)]}: a folder is named twice; expected different ones.'
    )
  return names


def unique_ends(paths: Sequence[tuple[str, ...]]) -> list[str]:
  """Return the last parts of each path that no other path has; '' where all recur."""
  names = []
  for parts in paths:
    ends = [parts[-n:] for n in range(1, len(parts) + 1)]
    alone = (x for x in ends if [y[-len(x) :] for y in paths].count(x) == 1)
    names.append('/'.join(next(alone, ())))
  return names


def places(
  sizes: Sequence[int], rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Return the part of each row [n], and its number there; -1 stays."""
  firsts = np.cumsum([0, *sizes[:-1]])
  parts = np.searchsorted(firsts, np.maximum(rows, 0), 'right') - 1
  return parts, np.where(rows < 0, -1, rows - firsts[parts])


class _Columns(columns.Columns):
  """The metadata of joined documents; those of a store without a field lack it."""

  def __init__(self, parts: Sequence[tokens_lib.TokenStore]):
    self._parts = parts
    self.names = tuple(
      dict.fromkeys(name for x in parts for name in x.metadata.names)
    )

  def shards(self, name: str) -> Iterator[tuple[np.ndarray, list[base.Scalar]]]:
    """See `Columns`."""
    for part in self._parts:
      if name in part.metadata.names:
        yield from part.metadata.shards(name)
      else:
        yield np.zeros(part.num_documents, np.uint32), [None]

  def rows(
    self, documents: np.ndarray | Sequence[int]
  ) -> list[dict[str, base.Scalar]]:
    """See `Columns`."""
    missing = dict.fromkeys(self.names)
    sizes = [x.num_documents for x in self._parts]
    rows = zip(*places(sizes, np.asarray(documents)), strict=True)
    return [
      missing | self._parts[part].metadata.rows([int(row)])[0]
      for part, row in rows
    ]


class JoinedTokens(tokens_lib.TokenStore):
  """The documents of several token stores."""

  def __init__(
    self, parts: Sequence[tokens_lib.TokenStore], names: Sequence[str]
  ):
    super().__init__(array_store.JoinedStore([x.store for x in parts]))
    self._names = np.repeat(names, [x.store.num_shards for x in parts])
    self.metadata = _Columns(parts)

  def document_id(self, i: int) -> str:
    """Return the id of document `i`, FOLDER:ID."""
    [shard], _ = self._token_end.locate(np.asarray([i]))
    return f'{self._names[shard]}:{super().document_id(i)}'


class _Joined(passages.Passages):
  """The passages of `parts`, stores of one kind, and the names of their `folders`."""

  def __init__(self, parts: Sequence[passages.Passages], names: Sequence[str]):
    self.parts, self.folders = parts, names
    self.sizes = [*map(len, parts)]
    tokens = [x.tokens for x in parts]
    super().__init__(
      array_store.JoinedStore([x.store for x in parts]),
      JoinedTokens(tokens, names),
    )
    counts = [x.store.num_shards for x in parts]
    documents = np.cumsum([0, *(x.num_documents for x in tokens[:-1])])
    self._first = np.repeat(documents, counts)  # document of each shard's part

  def __reduce__(self):
    """Pickle the parts, which another process opens."""
    return type(self), (self.parts, self.folders)

  def documents(self, ids: np.ndarray) -> np.ndarray:
    """See `Passages`."""
    shards, _ = self._document.locate(ids)
    return np.asarray(super().documents(ids) + self._first[shards])


class JoinedBlocks(_Joined, blocks_lib.BlockStore):
  """The blocks of several folders, of equal lengths."""


class JoinedChunks(_Joined, chunks_lib.ChunkStore):
  """The chunks of several folders, each read by the tokenizer of its own."""

  def texts(self, ids: np.ndarray) -> list[str]:
    """See `ChunkStore`."""
    parts, rows = places(self.sizes, np.asarray(ids))
    texts = np.full(len(parts), '', object)
    for part in np.unique(parts):
      here = parts == part
      texts[here] = self.parts[part].texts(rows[here])
    return texts.tolist()
