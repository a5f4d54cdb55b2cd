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

  Parts at the end of all paths are left out: a and b of a/data and b/data.

  Raises:
    ValueError: where two are the same folder.
  """
  paths = [pathlib.Path(x).absolute().parts for x in folders]
  while len(paths) > 1 and len({x[-1:] for x in paths}) == 1 and paths[0]:
    paths = [x[:-1] for x in paths]
  names = []
  for parts in paths:
    ends = [parts[-n:] for n in range(1, len(parts) + 1)]
    alone = (x for x in ends if [y[-len(x) :] for y in paths].count(x) == 1)
    if (end := next(alone, None)) is None:
      raise ValueError(
        f'{[*map(str, folders)]}: a folder is named twice; expected different ones.'
      )
    names.append('/'.join(end))
  return names


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
    places = zip(*_places(sizes, np.asarray(documents)), strict=True)
    return [
      missing | self._parts[part].metadata.rows([int(row)])[0]
      for part, row in places
    ]


def _places(
  sizes: Sequence[int], rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Return the part of each row [n], and its number there; -1 stays."""
  firsts = np.cumsum([0, *sizes[:-1]])
  parts = np.searchsorted(firsts, np.maximum(rows, 0), 'right') - 1
  return parts, np.where(rows < 0, -1, rows - firsts[parts])


def places(
  names: Sequence[str], sizes: Sequence[int], rows: np.ndarray
) -> list[str]:
  """Return FOLDER:ROW of each row [n], its number in its folder; '' for -1.

  Args:
    names: of the folders.
    sizes: rows of each.
  """
  return [
    f'{names[part]}:{row}' if row >= 0 else ''
    for part, row in zip(*_places(sizes, rows), strict=True)
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
  """The passages of several stores of one kind.

  Attributes:
    parts: the stores.
    folders: their names.
  """

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

  def _of_parts(self, method: str, ids: np.ndarray, *how: int) -> list:
    """Return a list that the method of a passage's own store makes."""
    ids = np.asarray(ids)
    made, (parts, rows) = [None] * len(ids), _places(self.sizes, ids)
    for part in np.unique(parts):
      here = np.flatnonzero(parts == part)
      values = getattr(self.parts[part], method)(rows[here], *how)
      for i, value in zip(here, values, strict=True):
        made[i] = value
    return made


class JoinedBlocks(_Joined, blocks_lib.BlockStore):
  """The blocks of several folders; ValueError for blocks of unequal lengths."""

  def __init__(
    self, parts: Sequence[blocks_lib.BlockStore], names: Sequence[str]
  ):
    lengths = {name: x.max_length for name, x in zip(names, parts, strict=True)}
    if len({*lengths.values()}) > 1:
      raise ValueError(
        f'blocks.max_length: {lengths}; expected folders of equal lengths.'
      )
    super().__init__(parts, names)


class JoinedChunks(_Joined, chunks_lib.ChunkStore):
  """The chunks of several folders, each read by the tokenizer of its own."""

  def token_rows(
    self, ids: np.ndarray, first: int = 0, limit: int = 1
  ) -> list[np.ndarray]:
    """See `ChunkStore`."""
    return self._of_parts('token_rows', ids, first, limit)

  def texts(self, ids: np.ndarray) -> list[str]:
    """See `ChunkStore`."""
    return self._of_parts('texts', ids)

  def full_texts(self, ids: np.ndarray) -> list[str]:
    """See `ChunkStore`."""
    return self._of_parts('full_texts', ids)
