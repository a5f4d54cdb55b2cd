# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Columns of metadata in the shards of a token store.

A store with metadata names its fields; a shard holds of each field i

metadata{i}_code    [n] uint32   which of the values each document has
metadata{i}_values  [m] uint8    the shard's different values, a JSON list
"""

from collections.abc import Iterator, Mapping, Sequence
import functools
import json

import numpy as np

from retrieval.readers import base
from retrieval.store import array_store

_OPEN_SHARDS = 64  # whose values stay in memory


def encode(
  metadata: Sequence[Mapping[str, base.Scalar]], names: Sequence[str]
) -> dict[str, np.ndarray]:
  """Return the arrays of a shard of documents; a missing value is null."""
  arrays = {}
  for i, name in enumerate(names):
    numbers: dict[str, int] = {}  # of JSON, which tells 1 from true
    codes = [
      numbers.setdefault(json.dumps(row.get(name)), len(numbers))
      for row in metadata
    ]
    values = f'[{", ".join(numbers)}]'.encode()
    arrays[f'metadata{i}_code'] = np.asarray(codes, np.uint32)
    arrays[f'metadata{i}_values'] = np.frombuffer(values, np.uint8)
  return arrays


class Columns:
  """The metadata of a token store's documents; `names` are those of its fields."""

  def __init__(self, tokens: array_store.Store):
    self._tokens = tokens
    self.names: tuple[str, ...] = tuple(tokens.fields.get('metadata', ()))
    each = range(len(self.names))
    self._codes = [tokens.array(f'metadata{i}_code') for i in each]
    values = [tokens.array(f'metadata{i}_values') for i in each]
    self._values = functools.lru_cache(_OPEN_SHARDS)(
      lambda i, shard: json.loads(values[i].shard(shard).tobytes())
    )

  def __reduce__(self):
    """Open the store again in another process."""
    return Columns, (self._tokens,)

  def shards(self, name: str) -> Iterator[tuple[np.ndarray, list[base.Scalar]]]:
    """Yield the codes [n] of a field and the values they number, by shard."""
    i = self.names.index(name)
    for shard in range(self._codes[i].num_shards):
      yield self._codes[i].shard(shard), self._values(i, shard)

  def rows(
    self, documents: np.ndarray | Sequence[int]
  ) -> list[dict[str, base.Scalar]]:
    """Return the metadata of documents [n]; None for a missing value."""
    documents = np.asarray(documents, np.int64)
    rows: list[dict[str, base.Scalar]] = [{} for _ in documents]
    for i, name in enumerate(self.names):
      places = (x.tolist() for x in self._codes[i].locate(documents))
      for row, shard, at in zip(rows, *places, strict=True):
        code = self._codes[i].shard(shard)[at]
        row[name] = self._values(i, shard)[code]
    return rows
