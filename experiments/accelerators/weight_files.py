# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Weights at 8 bits in files of at most 16 MiB, as lines to rented machines want.

NAME.00.safetensors and so on hold the arrays of `packed.quantize` in their order; an
array that is larger than a file goes on in the next, by rows.
"""

from collections.abc import Mapping
import os
import pathlib
from typing import Any

import numpy as np

from retrieval.store import packed, safetensors_files

MAX_BYTES = 16 << 20  # of a file
_HEADER = 1 << 20  # bytes left for names, and for a row that does not split


def write(
  folder: pathlib.Path,
  name: str,
  tree: Mapping[str, Any],
  max_bytes: int = MAX_BYTES,
) -> None:
  """Write parameters; a killed call leaves the old files, seldom some of each."""
  room = max_bytes - min(_HEADER, max_bytes // 2)
  files: list[dict[str, np.ndarray]] = [{}]
  for key, array in packed.quantize(tree).items():
    count = -(-array.nbytes // room)
    parts = np.array_split(array, count) if count > 1 else [array]
    for number, part in enumerate(parts):
      if sum(x.nbytes for x in files[-1].values()) + part.nbytes > room:
        files.append({})
      files[-1][f'{key}:{number}'] = part
  paths = [folder / f'{name}.{i:02}.safetensors' for i in range(len(files))]
  for path, arrays in zip(paths, files, strict=True):
    safetensors_files.write(path.with_suffix('.next'), arrays)
  for path in {*folder.glob(f'{name}.*.safetensors')} - {*paths}:
    path.unlink()
  for path in paths:
    os.replace(path.with_suffix('.next'), path)


def read(folder: pathlib.Path, name: str) -> dict[str, Any]:
  """Return the parameters of `write`, float32; {} without files of this name."""
  parts: dict[str, list[np.ndarray]] = {}
  for path in sorted(folder.glob(f'{name}.*.safetensors')):
    for key, array in safetensors_files.read(path).items():
      parts.setdefault(key.rpartition(':')[0], []).append(array)
  return packed.dequantize(
    {k: x[0] if len(x) == 1 else np.concatenate(x) for k, x in parts.items()}
  )
