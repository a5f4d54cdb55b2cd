# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The compressed vectors of the tokens of blocks, written shard by shard.

Santhanam et al. 2021 (ColBERTv2), sections 3.3 and 3.4.

  PATH/codec    centroids and buckets, from a sample of the blocks
  PATH/tokens   shards of blocks: codes of the tokens, and centroid -> blocks

Dimension key: b queries, Q tokens of a query, C centroids, d values of a vector; T
tokens and n blocks of a shard.
"""

from collections.abc import Mapping
import os
import pathlib
from typing import Any

import numpy as np

from retrieval.search import residual_codes
from retrieval.store import array_store, shards
from retrieval.text import passages as passages_lib

KIND = 'colbert_tokens'
CODEC_KIND = 'colbert_codec'
SETTINGS = {
  'num_centroids': 0,  # by the number of vectors
  'num_bits': residual_codes.NUM_BITS,
  'num_iterations': residual_codes.NUM_ITERATIONS,
  'seed': residual_codes.SEED,
  'sample_blocks': 2048,  # from which the codec is fitted
  'shard_blocks': 2048,  # blocks of a shard
}
_DENSEST = 2**16  # centroids that 16 bits name


def build(
  path: str | os.PathLike, encoder: Any, passages: passages_lib.Passages, **how
) -> None:
  """Write an index, or the rest of one after a killed build.

  Args:
    path: output folder.
    encoder: a `colbert.ColbertEncoder`, which may be `Lazy`.
    how: executor, progress and meta of `shards.build_store`;
      the progress is that of the shards.

  Raises:
    ValueError: for no block, and when `path` holds another index.
  """
  path, n = pathlib.Path(path), len(passages)
  if not n:
    raise ValueError(f'{path}: no passages: expected at least 1.')
  fields = {
    'encoder': encoder.fingerprint,
    'texts': passages.fingerprint,
    'num_blocks': n,
    **SETTINGS,
  }

  def make_codec(*_):
    return vars(_fit(encoder, passages))

  shards.build_store(path / 'codec', CODEC_KIND, fields, [0], make_codec)
  codec = _open_codec(path / 'codec', fields)
  size = SETTINGS['shard_blocks']
  counts = [min(size, n - low) for low in range(0, n, size)]

  def shard(number: int, progress: shards.Progress | None):
    ids = number * size + np.arange(counts[number])
    vectors = encoder.passages(passages.search_texts(ids), progress)
    codes = codec.encode(vectors.values)
    return _shard_arrays(len(codec.centroids), vectors.ends, *codes)

  shards.build_store(path / 'tokens', KIND, fields, counts, shard, **how)


def _fit(encoder, passages) -> residual_codes.Codec:
  count = min(SETTINGS['sample_blocks'], len(passages))
  rng = np.random.default_rng(residual_codes.SEED)
  chosen = np.sort(rng.choice(len(passages), count, replace=False))
  vectors = encoder.passages(passages.search_texts(chosen)).values
  return residual_codes.train(vectors, len(vectors) * len(passages) // count)


def _shard_arrays(
  num_centroids: int, ends: np.ndarray, nearest: np.ndarray, codes: np.ndarray
) -> dict[str, np.ndarray]:
  """Return ends [n], centroids [T], codes [T, bytes], starts [C + 1], blocks.

  The blocks with a token at centroid c, ascending, are blocks[starts[c] : starts[c
  + 1]], counted within the shard.
  """
  counts = np.diff(ends, prepend=0)
  n = len(counts)
  pairs = np.unique(nearest * np.int64(n) + np.repeat(np.arange(n), counts))
  centroids, blocks = np.divmod(pairs, n)
  small = np.uint16 if num_centroids <= _DENSEST else np.int32
  return {
    'ends': ends,
    'centroids': nearest.astype(small),
    'codes': codes,
    'starts': np.searchsorted(centroids, np.arange(num_centroids + 1)),
    'blocks': blocks.astype(np.int32),
  }


def open_store(
  path: str | os.PathLike,
) -> tuple[array_store.Store, residual_codes.Codec]:
  """Open the store of the tokens, and the codec.

  Raises:
    FileNotFoundError: when there is no index.
    ValueError: when it is damaged.
  """
  path = pathlib.Path(path)
  stored = array_store.Store.open(path / 'tokens', KIND)
  return stored, _open_codec(path / 'codec', stored.fields)


def _open_codec(
  path: pathlib.Path, fields: Mapping[str, Any]
) -> residual_codes.Codec:
  stored = array_store.Store.open(path, CODEC_KIND, fields)
  parts = ('centroids', 'cutoffs', 'levels')
  return residual_codes.Codec(*(np.asarray(stored.shard(0, x)) for x in parts))
