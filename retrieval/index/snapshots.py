# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Snapshots of parameters: trees of arrays, each in one safetensors file."""

import hashlib
import pathlib
from typing import Any

from flax import traverse_util
import jax
import numpy as np
import safetensors
from safetensors import numpy as safetensors_numpy

from retrieval.store import output_files


def fingerprint(params: Any) -> str:
  """Hash names, shapes and values of a tree of arrays."""
  digest = hashlib.sha256()
  for path, leaf in jax.tree_util.tree_leaves_with_path(params):
    array = np.ascontiguousarray(leaf)
    name = f'{jax.tree_util.keystr(path)}{array.shape}{array.dtype}'
    digest.update(name.encode())
    digest.update(array)
  return digest.hexdigest()[:32]


def write(path: pathlib.Path, params: Any) -> None:
  """Write a tree of arrays as one safetensors file, atomically."""
  flat = traverse_util.flatten_dict(params, sep='/')
  arrays = {k: np.ascontiguousarray(v) for k, v in flat.items()}
  output_files.write(path, safetensors_numpy.save(arrays))


def read(path: pathlib.Path) -> dict:
  """Read a file of `write`; ValueError for a damaged one."""
  try:
    flat = safetensors_numpy.load_file(path)
  except safetensors.SafetensorError as e:
    raise ValueError(f'{path}: damaged ({e}).') from None
  return traverse_util.unflatten_dict(flat, sep='/')
