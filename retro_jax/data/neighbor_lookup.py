# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Text in, neighbors out: a retriever, and the tokens of what it finds."""

from collections.abc import Sequence
import dataclasses

import numpy as np

from retrieval import tokenization
from retrieval.search import retriever as retriever_lib
from retrieval.text import chunks as chunks_lib


@dataclasses.dataclass(frozen=True)
class Retrieved:
  """Neighbors of a batch of texts, best first."""

  ids: np.ndarray  # [b, k] int64 chunk ids, -1 for none
  scores: np.ndarray  # [b, k] float32, larger is better; -inf for none
  # [b, k, r] int32: each neighbor chunk and its continuation
  tokens: np.ndarray
  mask: np.ndarray  # [b, k, r] bool, False past the document's end and for none
  # [b][k] title of each neighbor's document, '' for none
  titles: list[list[str]]


@dataclasses.dataclass(frozen=True)
class NeighborLookup:
  """Retrieves neighbors for new text."""

  retriever: retriever_lib.Retriever
  datastore: chunks_lib.ChunkStore
  tokenizer: tokenization.Tokenizer
  neighbor_length: int  # r, tokens of a neighbor with its continuation
  # part of a neighbor that is read, one of `chunks.PARTS`
  neighbor_part: str = 'full'

  def check_stored(self, k: int) -> None:
    """Raise ValueError for more neighbors than there are chunks."""
    if k > (stored := len(self.datastore)):
      raise ValueError(
        f'{self.datastore.path}: num_neighbors {k} is more than its {stored:,} '
        'chunks.'
      )

  def retrieve(self, texts: Sequence[str], k: int) -> Retrieved:
    """Retrieve the k nearest chunks of each text; a blank text finds none.

    Raises:
      ValueError: for more neighbors than there are chunks.
    """
    self.check_stored(k)
    ids, scores = self.retriever.search(texts, k)
    tokens, mask = self.datastore.gather(
      ids, self.neighbor_length, self.neighbor_part
    )
    titles = [self.datastore.titles(row) for row in ids]
    return Retrieved(ids, scores, tokens, mask, titles)

  def retrieve_tokens(self, rows: Sequence[np.ndarray], k: int) -> Retrieved:
    """Retrieve for [b] arrays of token ids, special tokens included."""
    return self.retrieve([self.tokenizer.decode(row) for row in rows], k)
