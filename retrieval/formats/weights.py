# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The weights of a folder in the Hugging Face layout, in one file or in parts."""

import hashlib
import os
import pathlib
from typing import Any

import jax
import numpy as np

from retrieval.store import manifests, safetensors_files

_FILES = ('model.safetensors', 'pytorch_model.bin')
_INDEX = '.index.json'
_POINTER = b'version https://git-lfs'


def find(folder: str | os.PathLike) -> pathlib.Path:
  """Return the file of weights in a folder, or the index of its parts."""
  for name in (x + end for x in _FILES for end in ('', _INDEX)):
    path = pathlib.Path(folder, name)
    if path.is_file():
      with open(path, 'rb') as f:
        if f.read(len(_POINTER)) == _POINTER:
          raise ValueError(f'{path}: a pointer of Git LFS; run git lfs pull.')
      return path
  raise FileNotFoundError(
    f'{folder}: no weights; expected {" or ".join(_FILES)}, or the index.json of '
    'one in parts.'
  )


def read(path: str | os.PathLike) -> dict[str, np.ndarray]:
  """Map the arrays of a path from `find`."""
  path = pathlib.Path(path)
  read_file = safetensors_files.read
  if path.name.removesuffix(_INDEX) == _FILES[1]:
    from retrieval.formats import torch_pickle

    read_file = torch_pickle.read
  if not path.name.endswith(_INDEX):
    return read_file(path)
  places = manifests.read_object(path).get('weight_map')
  if not isinstance(places, dict) or not all(
    isinstance(x, str) and pathlib.PurePath(x).name == x
    for x in places.values()
  ):
    raise ValueError(
      f'{path}: expected weight_map, the name of a file beside it for each array.'
    )
  parts = {}
  for part in sorted({*places.values()}):
    if not (file := path.with_name(part)).is_file():
      raise FileNotFoundError(f'{file}: missing; {path} names it.')
    parts[part] = read_file(file)
  for name, part in places.items():
    if name not in parts[part]:
      raise ValueError(
        f'{path.with_name(part)}: lacks {name}, named in {path}.'
      )
  return {name: parts[part][name] for name, part in places.items()}


def hash_params(params: Any, settings: bytes = b'') -> str:
  """Hash settings, and names, shapes and values of a tree of parameters."""
  digest = hashlib.sha256(settings)
  for path, leaf in jax.tree_util.tree_leaves_with_path(params):
    digest.update(f'{jax.tree_util.keystr(path)}{np.shape(leaf)}'.encode())
    digest.update(np.ascontiguousarray(leaf, np.float32))
  return digest.hexdigest()
