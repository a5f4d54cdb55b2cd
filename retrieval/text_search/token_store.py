# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The compressed vectors of the tokens of blocks, written shard by shard.

Santhanam et al. 2021 (ColBERTv2), sections 3.3 and 3.4.

  PATH/codec    centroids and buckets, from a sample of the blocks
  PATH/tokens   shards of blocks: codes of the tokens, and centroid -> blocks

Dimension key: b queries, Q tokens of a query, C centroids, d values of a vector; T
tokens and n blocks of a shard.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
import os
import pathlib
from typing import Any, Protocol, runtime_checkable

import numpy as np

from retrieval import settings
from retrieval.nn import colbert_encoder
from retrieval.store import shards, store
from retrieval.text_search import residual_codes

KIND = 'colbert_tokens'
_CODEC = 'colbert_codec'
_DENSEST = 2**16  # centroids that 16 bits name

# First and past-last block -> their texts.
Texts = Callable[[int, int], Sequence[str]]


@runtime_checkable
class Encoder(Protocol):
  """What a `colbert_encoder.ColbertEncoder` is to the index."""

  fingerprint: str

  def queries(self, texts: Sequence[str]) -> np.ndarray:
    """Return vectors [b, Q, d] float32 of length 1."""

  def passages(
    self, texts: Sequence[str], progress: shards.Progress | None = None
  ) -> colbert_encoder.TokenVectors:
    """Return vectors of length 1, one or more for each text."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class IndexConfig(residual_codes.CodecConfig):
  """Settings of an index."""

  sample_blocks: settings.Size = 2048  # from which the codec is fitted
  shard_blocks: settings.Size = 2048  # blocks of a shard


def build(
  path: str | os.PathLike,
  encoder: Encoder,
  texts: Texts,
  num_blocks: int,
  texts_hash: str,
  config: IndexConfig | None = None,
  progress: shards.Progress | None = None,
) -> None:
  """Write an index, or what a killed build has left to write.

  Args:
    path: output folder.
    texts_hash: fingerprint of the blocks.
    progress: called with (blocks done, blocks in all) of the shards.

  Raises:
    ValueError: for no block, and when `path` holds another index.
  """
  config, path = config or IndexConfig(), pathlib.Path(path)
  if num_blocks < 1:
    raise ValueError(f'{path}: {num_blocks} blocks: expected at least 1.')
  fields = {
    'encoder': encoder.fingerprint,
    'texts': texts_hash,
    'num_blocks': num_blocks,
    **dataclasses.asdict(config),
  }
  make = functools.partial(_sampled, encoder, texts, num_blocks, config)
  shards.build_store(path / 'codec', _CODEC, fields, [0], lambda *_: make())
  codec = _open_codec(path / 'codec', fields)
  size = config.shard_blocks
  lows = range(0, num_blocks, size)

  def shard(number, progress):
    low = lows[number]
    found = texts(low, min(low + size, num_blocks))
    return _shard_arrays(codec, encoder.passages(found, progress))

  counts = [min(size, num_blocks - low) for low in lows]
  shards.build_store(
    path / 'tokens', KIND, fields, counts, shard, progress=progress
  )


def _sampled(
  encoder: Encoder, texts: Texts, num_blocks: int, config: IndexConfig
) -> dict[str, np.ndarray]:
  """Return the arrays of a codec that is fitted to some of the blocks."""
  rng = np.random.default_rng(config.seed)
  count = min(config.sample_blocks, num_blocks)
  chosen = np.sort(rng.choice(num_blocks, count, replace=False)).tolist()
  vectors = encoder.passages([texts(i, i + 1)[0] for i in chosen]).values
  stored = len(vectors) * num_blocks // count
  return dict(residual_codes.train(vectors, config, stored).arrays())


def _shard_arrays(
  codec: residual_codes.Codec, vectors: colbert_encoder.TokenVectors
) -> dict[str, np.ndarray]:
  """Return ends [n], centroids [T], codes [T, bytes], starts [C + 1], blocks.

  The blocks with a token at centroid c, ascending, are blocks[starts[c] : starts[c
  + 1]], counted within the shard.
  """
  nearest, codes = codec.encode(vectors.values)
  counts = np.diff(vectors.ends, prepend=0)
  n, num_centroids = len(counts), len(codec.centroids)
  pairs = np.unique(nearest * np.int64(n) + np.repeat(np.arange(n), counts))
  centroids, blocks = np.divmod(pairs, n)
  small = np.uint16 if num_centroids <= _DENSEST else np.int32
  return {
    'ends': vectors.ends,
    'centroids': nearest.astype(small),
    'codes': codes,
    'starts': np.searchsorted(centroids, np.arange(num_centroids + 1)),
    'blocks': blocks.astype(np.int32),
  }


def open_store(
  path: str | os.PathLike,
) -> tuple[store.Store, residual_codes.Codec]:
  """Open what `build` wrote: the store of the tokens, and the codec.

  Raises:
    FileNotFoundError: when there is no index.
    ValueError: when it is damaged.
  """
  path = pathlib.Path(path)
  found = store.Store.open(path / 'tokens', KIND)
  return found, _open_codec(path / 'codec', found.fields)


def _open_codec(
  path: pathlib.Path, fields: Mapping[str, Any]
) -> residual_codes.Codec:
  found = store.Store.open(path, _CODEC, fields)
  names = [field.name for field in dataclasses.fields(residual_codes.Codec)]
  return residual_codes.Codec(
    **{name: np.asarray(found.shard(0, name)) for name in names}
  )
