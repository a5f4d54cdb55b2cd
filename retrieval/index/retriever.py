# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Text in, neighbors out: embedder, searcher and datastore in one object."""

from collections.abc import Sequence
import dataclasses

import numpy as np

from retrieval import searchers
from retrieval import tokenization
from retrieval.nn import embedders
from retrieval.text import chunks as chunks_lib


@dataclasses.dataclass(frozen=True)
class Retrieved:
  """What was retrieved for a batch of texts.

  Attributes:
    ids: [b, k] int64 chunk ids, -1 for none.
    scores: [b, k] float32, larger is better; -inf for none.
    tokens: [b, k, r] int32: each neighbor chunk and its continuation.
    mask: [b, k, r] bool, False past the document's end and for none.
    titles: [b][k] title of each neighbor's document, '' for none.
  """

  ids: np.ndarray
  scores: np.ndarray
  tokens: np.ndarray
  mask: np.ndarray
  titles: list[list[str]]


@dataclasses.dataclass(frozen=True)
class Retriever:
  """Retrieves neighbors for new text.

  Attributes:
    embedder: the frozen one that made the index.
    searcher: over the datastore's vectors.
    datastore: the chunks behind the vectors.
    tokenizer: of the datastore.
    neighbor_length: r, tokens of a neighbor with its continuation.
    neighbor_part: what is read of these, one of `chunks.PARTS`.
  """

  embedder: embedders.Embedder
  searcher: searchers.Searcher
  datastore: chunks_lib.ChunkStore
  tokenizer: tokenization.Tokenizer
  neighbor_length: int
  neighbor_part: str = 'full'

  def retrieve(self, texts: Sequence[str], k: int) -> Retrieved:
    """Retrieves the k nearest chunks of each text.

    Args:
      texts: [b] strings.
      k: neighbors for each.

    Returns:
      Neighbors, best first; none for a text of blanks, which says nothing.
    """
    vectors = self.embedder.embed_texts(list(texts))
    ids, scores = self.searcher.search(vectors, k)
    said = np.array([bool(text.strip()) for text in texts], bool)[:, None]
    ids, scores = np.where(said, ids, -1), np.where(said, scores, -np.inf)
    tokens, mask = self.datastore.gather(
      ids, self.neighbor_length, self.neighbor_part
    )
    return Retrieved(ids, scores, tokens, mask, self.datastore.titles(ids))

  def retrieve_tokens(self, rows: Sequence[np.ndarray], k: int) -> Retrieved:
    """Retrieves for chunks of tokens: [b] arrays of ids, specials allowed."""
    return self.retrieve([self.tokenizer.decode(row) for row in rows], k)
