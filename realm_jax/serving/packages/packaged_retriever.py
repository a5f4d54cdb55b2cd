# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The dense retriever that comes with the package, 8 bits a value.

The embedder is all-MiniLM-L6-v2 in the packaged reader's config. The vectors are its
own of the packaged articles' blocks, so that no block has to be embedded.
"""

from collections.abc import Mapping
import os
import pathlib
from typing import Any

import numpy as np

from realm_jax.serving.packages import packaged_reader
from retrieval.formats import packed, safetensors_files
from retrieval.index import snapshots
from retrieval.store import checksums, manifests, store, verification
from retrieval.text import blocks as blocks_lib

_EMBEDDER, _VECTORS = _FILES = 'embedder.safetensors', 'vectors.safetensors'
_FACTS = 'retriever.json'


def rounded(params: Mapping[str, Any]) -> dict[str, Any]:
  """Return an embedder's parameters as they are after `save` and `load`."""
  return packed.dequantize(packed.quantize(params))


def save(
  folder: str | os.PathLike,
  params: Mapping[str, Any],
  blocks: blocks_lib.BlockStore,
  vectors: np.ndarray,
) -> None:
  """Write a retriever beside the packaged reader.

  Args:
    params: `serving.embedder_params`.
    vectors: [n, d] float32, of all blocks by the `rounded` parameters.
  """
  folder = pathlib.Path(folder)
  files = packed.quantize(params), quantize_rows(vectors)
  for name, arrays in zip(_FILES, files, strict=True):
    safetensors_files.write(folder / name, arrays)
  facts = {
    'params': snapshots.fingerprint(rounded(params)),
    'blocks': blocks.fingerprint,
    'files': {name: checksums.of_file(folder / name) for name in _FILES},
  }
  store.write_atomically(folder / _FACTS, manifests.sealed(facts))


def quantize_rows(vectors: np.ndarray) -> dict[str, np.ndarray]:
  """Round vectors [n, d] to int8, each with its own scale [n, 1] float32."""
  scale = np.abs(vectors).max(axis=1, keepdims=True) / packed.LEVELS
  levels = np.rint(vectors / np.where(scale > 0, scale, 1)).astype(np.int8)
  return {'levels': levels, 'scale': scale.astype(np.float32)}


def exists() -> bool:
  """Whether the package holds a retriever."""
  return (packaged_reader.FOLDER / _FACTS).is_file()


def covers(blocks: blocks_lib.BlockStore) -> bool:
  """Whether the package holds the vectors of these blocks."""
  return exists() and _facts()['blocks'] == blocks.fingerprint


def is_own(params: Any) -> bool:
  """Whether `serving.embedder_params`, host arrays, are those of `load`."""
  return exists() and _facts()['params'] == snapshots.fingerprint(params)


def load() -> dict[str, Any]:
  """Read `serving.embedder_params`, float32.

  Raises:
    ValueError: when a file is damaged.
  """
  return packed.dequantize(_read(_EMBEDDER, _facts()))


def vectors_of(params: Any, blocks: blocks_lib.BlockStore) -> np.ndarray | None:
  """Read the vectors of blocks by an embedder: [n, d] float32.

  Args:
    params: `serving.embedder_params`, host arrays.

  Returns:
    The vectors; None where the package holds those of other blocks or of other
    parameters.
  """
  if not (covers(blocks) and is_own(params)):
    return None
  arrays = _read(_VECTORS, _facts())
  return arrays['levels'].astype(np.float32) * arrays['scale']


def _facts() -> dict[str, Any]:
  return manifests.read_json(packaged_reader.FOLDER / _FACTS)


def _read(name: str, facts: Mapping[str, Any]) -> dict[str, np.ndarray]:
  path = packaged_reader.FOLDER / name
  again = 'install the package again, or pack the retriever again'
  verification.check(path, facts['files'][name], again, remember=False)
  return safetensors_files.read(path)
