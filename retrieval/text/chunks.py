# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Chunks of m tokens, as spans of their documents.

Borgeaud et al. 2021, section 2.2. Chunk ids run through the documents in order:
the chunks of a document have consecutive ids, and l of them make a training
sequence.
"""

from collections.abc import Sequence
import os

from jaxtyping import Bool, Int
import numpy as np

from retrieval.store import array_store, manifests, sharded_array, shards
from retrieval.text import passages, tokens as tokens_lib

KIND = 'chunks'
PARTS = ('full', 'neighbor', 'continuation')  # [N, F], N, F


def _shard_arrays(
  token_end: np.ndarray, first: int, chosen: np.ndarray, chunk_length: int
) -> dict[str, np.ndarray]:
  """Cut the chosen documents of one token shard into chunks."""
  starts = np.concatenate([[0], token_end[:-1]])[chosen]
  lengths = token_end[chosen] - starts
  counts = -(-lengths // chunk_length)
  row = np.repeat(np.arange(len(counts)), counts)
  within = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
  return {
    'document': (first + np.flatnonzero(chosen))[row].astype(np.int64),
    'position': (starts[row] + within * chunk_length).astype(np.int64),
    'available': (lengths[row] - within * chunk_length).astype(np.int32),
  }


def build_chunk_store(
  path: str | os.PathLike,
  tokens: tokens_lib.TokenStore,
  *,
  chunk_length: int = 64,
  split: str = 'all',
  valid_fraction: float = 0.0,
  test_fraction: float = 0.0,
  dropped: array_store.Store | None = None,
  added: Sequence[str] = (),
) -> 'ChunkStore':
  """Cut a split of a token store into chunks of `chunk_length` tokens.

  The documents that `dropped`, a store of `near_duplicates`, lists are left out.
  `added` are ids of documents added for retrieval: they belong to 'train' whatever
  their hash. ValueError when the split holds no document.
  """
  fields = {
    'tokens': tokens.store.fingerprint,
    'chunk_length': chunk_length,
    'split': split,
    'valid_fraction': valid_fraction,
  }
  if test_fraction:
    fields['test_fraction'] = test_fraction
  if added:
    fields['added'] = sorted(added)
  left_out = np.zeros(0, np.int64)
  if dropped is not None:
    made = dropped.fields['tokens'], dropped.fields['valid_fraction']
    expected = tokens.store.fingerprint, valid_fraction + test_fraction
    if made != expected:
      raise ValueError(
        f'{dropped.path}: made for the token store and share held out {made}, '
        f'expected {expected}; remove it and run the stage duplicates again.'
      )
    fields['dropped'] = dropped.fingerprint
    left_out = np.asarray(dropped.array('document')[:])
  source = tokens.store
  counts = source.rows('token_end')
  offsets = np.cumsum([0, *counts])

  def make(shard: int, _) -> dict[str, np.ndarray]:
    hashes = np.asarray(source.shard(shard, 'id_hash'))
    chosen = tokens_lib.in_split(
      hashes, split, valid_fraction, added, test_fraction
    )
    chosen &= ~np.isin(np.arange(*offsets[shard : shard + 2]), left_out)
    first = int(offsets[shard])
    token_end = source.shard(shard, 'token_end')
    arrays = _shard_arrays(token_end, first, chosen, chunk_length)
    return arrays | {'id_hash': hashes[arrays['document'] - first]}

  shards.build_store(
    path,
    KIND,
    fields,
    counts,
    make,
    meta={'tokens': tokens.path.name},
    needs_rows=(
      'document',
      f'split {split!r} with valid_fraction {valid_fraction} and test_fraction '
      f'{test_fraction} of {tokens.num_documents} documents holds no document; '
      'change the fractions, with a new --workdir, or bring more documents.',
    ),
  )
  return ChunkStore(path, tokens)


class ChunkStore(passages.Passages):
  """Chunks of a token store, memory-mapped.

  Attributes:
    chunk_length: m, in tokens.
    id_hash: [num_chunks] hash of the id of each chunk's document.
  """

  def __init__(
    self, path: passages.Place, tokens: tokens_lib.TokenStore | None = None
  ):
    super().__init__(path, KIND, tokens)
    self.chunk_length = self.store.fields.get('chunk_length')
    self._position = self.store.array('position')
    self._available = self.store.array('available')
    self.id_hash = self.store.array('id_hash')
    self.num_chunks = len(self)

  def ids(self, shard: int, rows: slice) -> np.ndarray:
    """Ids of the chunks from rows.start to rows.stop of a shard: [b] int64."""
    return self._document.offsets[shard] + np.arange(rows.start, rows.stop)

  def document_hashes(self, ids: np.ndarray) -> np.ndarray:
    """Hash of the id of each chunk's document: [...] uint64."""
    return self.id_hash[np.asarray(ids)]

  def lengths(self, ids: np.ndarray) -> np.ndarray:
    """Tokens in each chunk, at most m: [...] int64."""
    return np.minimum(self._available[np.asarray(ids)], self.chunk_length)

  def gather(
    self, ids: Int[np.ndarray, '*batch'], length: int, part: str = 'full'
  ) -> tuple[
    Int[np.ndarray, '*batch length'], Bool[np.ndarray, '*batch length']
  ]:
    """Read forward from the start of each chunk, to its document's end.

    With length 2m this gives the value of a RETRO neighbor, the chunk and its
    continuation (section 2.2); with m + 1 a chunk and its next token.

    Args:
      ids: chunk ids; -1 gives an empty row.
      part: one of `PARTS`; the other part is masked (table 13).

    Returns:
      Tokens [..., length] int32, and their mask, False past the document's end.
    """
    ids = np.asarray(ids, np.int64)
    real = np.maximum(ids, 0)
    shards, _ = self._document.locate(real)
    tokens, mask = sharded_array.gather_spans(
      self.tokens.tokens,
      ids,
      shards,
      np.asarray(self._position[real]),
      np.asarray(self._available[real]),
      length,
    )
    if part == 'neighbor':
      mask[..., self.chunk_length :] = False
    elif part == 'continuation':
      mask[..., : self.chunk_length] = False
    return np.where(mask, tokens, 0), mask

  def token_rows(
    self, ids: np.ndarray, first: int = 0, limit: int = 1
  ) -> list[np.ndarray]:
    """Return the tokens from chunk `first` to `limit` on, counted from each of ids."""
    m = self.chunk_length
    tokens, mask = self.gather(ids, limit * m)
    pairs = zip(tokens[:, first * m :], mask[:, first * m :], strict=True)
    return [row[keep] for row, keep in pairs]

  def texts(self, ids: np.ndarray) -> list[str]:
    """Return the text of each chunk for its embedding; '' for -1."""
    return [self.tokenizer.decode(row) for row in self.token_rows(ids)]

  def full_texts(self, ids: np.ndarray) -> list[str]:
    """Return the texts of chunks with their continuations, as neighbors are read."""
    rows = self.token_rows(ids, limit=2)
    return [self.tokenizer.decode(row) for row in rows]

  def hashes(self, ids: np.ndarray) -> np.ndarray:
    """Return hashes of the tokenizer and the tokens of each chunk: [n] uint64."""
    prefix = self.tokenizer.fingerprint.encode()
    each = (
      tokens_lib.hash_bytes(prefix + row.tobytes())
      for row in self.token_rows(ids)
    )
    return np.fromiter(each, np.uint64, len(ids))


class TitledChunks(ChunkStore):
  """Chunks with title and continuation in an index of words."""

  def __init__(
    self, path: str | os.PathLike, tokens: tokens_lib.TokenStore | None = None
  ):
    super().__init__(path, tokens)
    self.fingerprint = manifests.fingerprint([self.fingerprint, 'titled'])

  def search_texts(self, ids: np.ndarray) -> list[str]:
    """Return the text of each chunk with its continuation, below the title."""
    pairs = zip(self.titles(ids), self.full_texts(ids), strict=True)
    return [f'{title}\n{text}' for title, text in pairs]
