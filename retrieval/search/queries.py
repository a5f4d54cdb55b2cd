# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Queries of a retriever: new texts, or stored chunks."""

from collections.abc import Sequence
import copy
import functools
from typing import TYPE_CHECKING
import zlib

import numpy as np

from retrieval import arguments
from retrieval.searchers import base, subset as subset_lib

if TYPE_CHECKING:
  from retrieval.text import chunks as chunks_lib


def checked(queries: 'Queries | Sequence[str]', k: int) -> 'Queries':
  """Return queries, made of texts if need be; ValueError for k < 1 or no texts."""
  queries = queries if isinstance(queries, Queries) else Queries(queries)
  base.check_k(k)
  return queries


class Queries:
  """New texts.

  Attributes:
    texts: [b]
    vectors: [b, d] float32 of the texts; None lets the retriever embed them.
    excluded: [b] hash of the id of the document whose passages are left
      out of each query; None leaves out nothing.
    subset: of the passages to search; None is all.
    questions: whether the texts are questions, which an embedder may embed in
      another way than passages.
  """

  questions = False
  subset: subset_lib.Subset | None = None

  def __init__(
    self,
    texts: Sequence[str],
    vectors: np.ndarray | None = None,
    excluded: np.ndarray | None = None,
    questions: bool = False,
  ):
    """Take one text or several; ValueError for anything else."""
    self.texts = list(arguments.texts(texts, 'queries'))
    self.vectors, self.excluded = vectors, excluded
    self.questions = questions

  def __len__(self) -> int:
    return len(self.texts)

  def take(self, rows: range) -> 'Queries':
    """Return some of the queries."""
    vectors, excluded = (
      None if x is None else x[rows.start : rows.stop]
      for x in (self.vectors, self.excluded)
    )
    texts = [self.texts[i] for i in rows]
    return Queries(texts, vectors, excluded, self.questions).among(self.subset)

  def among(self, subset: subset_lib.Subset | None) -> 'Queries':
    """Return the same queries, which find only passages of a subset."""
    if subset is None:
      return self
    if self.subset is not None:
      subset = subset_lib.Subset(self.subset.mask & subset.mask)
    queries = copy.copy(self)
    queries.subset = subset
    return queries

  @property
  def asks(self) -> np.ndarray:
    """Mask [b] of the queries to search for; a blank text finds nothing."""
    return np.array([bool(text.strip()) for text in self.texts], bool)

  @property
  def seeds(self) -> np.ndarray:
    """An integer for each query [b]."""
    return np.array([zlib.crc32(x.encode()) for x in self.texts], np.int64)

  def following_rows(self) -> list[np.ndarray]:
    """Return the tokens after each query in its document; ValueError for new texts."""
    raise ValueError(
      'The source oracle compares with the text that follows, and nothing follows a '
      'new text; expected another source.'
    )


class ChunkQueries(Queries):
  """Stored chunks by their ids [b]; passages of their documents are excluded."""

  def __init__(self, chunks: 'chunks_lib.ChunkStore', ids: np.ndarray):
    self.chunks, self.ids = chunks, np.asarray(ids)
    self.vectors, self.excluded = None, chunks.document_hashes(self.ids)

  def __len__(self) -> int:
    return len(self.ids)

  @functools.cached_property
  def texts(self) -> list[str]:
    """Texts of the chunks [b]."""
    return self.chunks.texts(self.ids)

  def take(self, rows: range) -> 'ChunkQueries':
    """See `Queries`."""
    ids = self.ids[rows.start : rows.stop]
    return ChunkQueries(self.chunks, ids).among(self.subset)

  @property
  def asks(self) -> np.ndarray:
    """See `Queries`."""
    return np.ones(len(self), bool)

  @property
  def seeds(self) -> np.ndarray:
    """See `Queries`."""
    return self.ids

  def following_rows(self) -> list[np.ndarray]:
    """See `Queries`: the next chunk."""
    return self.chunks.token_rows(self.ids, 1, 2)
