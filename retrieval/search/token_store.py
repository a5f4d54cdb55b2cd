# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The compressed vectors of the tokens of blocks, written shard by shard.

Santhanam et al. 2021 (ColBERTv2), sections 3.3 and 3.4.

  PATH/codec    centroids and buckets, from a sample of the blocks
  PATH/tokens   shards of blocks: codes of the tokens, and centroid -> blocks

Dimension key: b queries, Q tokens of a query, C centroids, d values of a vector; T
tokens and n blocks of a shard.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import os
import pathlib
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from retrieval import settings
from retrieval.nn import colbert
from retrieval.search import residual_codes
from retrieval.store import array_store, manifests, shards
from retrieval.text import passages as passages_lib

KIND = 'colbert_tokens'
CODEC_KIND = 'colbert_codec'
_DENSEST = 2**16  # centroids that 16 bits name


@runtime_checkable
class Encoder(Protocol):
  """A model that encodes queries and passages, as `colbert.ColbertEncoder`."""

  fingerprint: str

  def queries(self, texts: Sequence[str]) -> np.ndarray:
    """Return vectors [b, Q, d] float32 of length 1."""

  def passages(
    self, texts: Sequence[str], progress: shards.Progress | None = None
  ) -> colbert.TokenVectors:
    """Return vectors of length 1, one or more for each text."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class IndexConfig(residual_codes.CodecConfig):
  """Settings of an index."""

  sample_blocks: settings.Size = 2048  # from which the codec is fitted
  shard_blocks: settings.Size = 2048  # blocks of a shard


class Codes(NamedTuple):
  """Codes of the tokens of some blocks of a shard, one block after the other."""

  places: np.ndarray  # [m] rows in the shard
  ends: np.ndarray  # [m] int64 past-last token of each
  centroids: np.ndarray  # [t] integers
  codes: np.ndarray  # [t, bytes] uint8


def build(
  path: str | os.PathLike,
  encoder: Encoder,
  passages: passages_lib.Passages,
  config: IndexConfig | None = None,
  *,
  known: Any = None,
  **how,
) -> None:
  """Write an index, or the rest of one after a killed build.

  Args:
    path: output folder.
    known: `reuse.KnownCodes` of an earlier index of the same encoder, whose codec
      and config stay.
    how: executor, progress and meta of `shards.build_store`;
      the progress is that of the shards.

  Raises:
    ValueError: for no block, and when `path` holds another index.
  """
  config = config_of(known.fields) if known else config or IndexConfig()
  path = pathlib.Path(path)
  if not len(passages):
    raise ValueError(f'{path}: no passages: expected at least 1.')
  fields = {
    'encoder': encoder.fingerprint,
    'texts': passages.fingerprint,
    'num_blocks': len(passages),
    **dataclasses.asdict(config),
  }
  # An update names the codec that was fitted for another index. A killed update has
  # written it: the build continues with it.
  if known:
    fields['codec'] = known.fields.get(
      'codec', manifests.fingerprint(known.fields)
    )
  elif (path / 'codec').is_dir():
    stands = array_store.Store.open(path / 'codec', CODEC_KIND).fields
    fields |= {x: stands[x] for x in ('codec',) if x in stands}

  def make_codec(*_):
    return vars(known.codec if known else _fit(encoder, passages, config))

  shards.build_store(path / 'codec', CODEC_KIND, fields, [0], make_codec)
  codec = _open_codec(path / 'codec', fields)
  size, n = config.shard_blocks, len(passages)
  counts = [min(size, n - low) for low in range(0, n, size)]

  def shard(number: int, progress: shards.Progress | None):
    ids = np.arange(counts[number]) + number * size
    parts = [*known(passages.hashes(ids))] if known else []
    parts += _encoded(encoder, codec, passages, ids, parts, progress)
    return _shard_arrays(len(codec.centroids), *_merged(parts))

  shards.build_store(path / 'tokens', KIND, fields, counts, shard, **how)


def _fit(encoder, passages, config: IndexConfig) -> residual_codes.Codec:
  """Fit a codec to some of the passages."""
  count = min(config.sample_blocks, len(passages))
  rng = np.random.default_rng(config.seed)
  chosen = np.sort(rng.choice(len(passages), count, replace=False))
  vectors = encoder.passages(passages.search_texts(chosen)).values
  stored = len(vectors) * len(passages) // count
  return residual_codes.train(vectors, config, stored)


def _encoded(
  encoder, codec, passages, ids, known: Sequence[Codes], progress
) -> list[Codes]:
  """Return the codes of the passages [n] that are not known."""
  places_known = [np.zeros(0, np.int64), *(part.places for part in known)]
  places = np.setdiff1d(np.arange(len(ids)), np.concatenate(places_known))
  done = len(ids) - len(places)
  if done and progress:
    progress(done, len(ids))
  if not len(places):
    return []
  shown = shards.shifted(progress, done, len(ids))
  new = encoder.passages(passages.search_texts(ids[places]), shown)
  return [Codes(places, new.ends, *codec.encode(new.values))]


def _merged(
  parts: Sequence[Codes],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Return ends, centroids and codes of all blocks of a shard, by their places."""
  order = np.argsort(np.concatenate([part.places for part in parts]))
  counts = [np.diff(part.ends, prepend=0) for part in parts]
  all_ends = np.cumsum(np.concatenate(counts), dtype=np.int64)
  positions, ends = colbert.spans(all_ends, order)
  centroids, codes = (
    np.concatenate([getattr(part, name) for part in parts])[positions]
    for name in ('centroids', 'codes')
  )
  return ends, centroids, codes


def _shard_arrays(
  num_centroids: int,
  ends: np.ndarray,
  nearest: np.ndarray,
  codes: np.ndarray,
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


def config_of(fields: Mapping[str, Any]) -> IndexConfig:
  """Return the settings of an index with these fields."""
  names = [field.name for field in dataclasses.fields(IndexConfig)]
  return IndexConfig(**{name: fields[name] for name in names})


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
