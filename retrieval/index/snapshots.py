# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Snapshots of parameters: trees of arrays, each in one safetensors file."""

import hashlib
import pathlib
from typing import Any

from flax import traverse_util
import jax
import numpy as np

from retrieval.store import safetensors_files


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
  arrays = traverse_util.flatten_dict(params, sep='/')
  safetensors_files.write(path, {k: np.asarray(v) for k, v in arrays.items()})


def read(path: pathlib.Path) -> dict:
  """Map a file of `write`; ValueError for a damaged one."""
  return traverse_util.unflatten_dict(safetensors_files.read(path), sep='/')
