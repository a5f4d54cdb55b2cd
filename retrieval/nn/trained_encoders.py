# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Fingerprints of the parameters of encoders of texts."""

import hashlib
from typing import Any

import jax
import numpy as np


def hash_params(params: Any, settings: bytes = b'') -> str:
  """Hash settings, and names, shapes and values of parameters."""
  digest = hashlib.sha256(settings)
  for path, leaf in jax.tree_util.tree_leaves_with_path(params):
    digest.update(f'{jax.tree_util.keystr(path)}{np.shape(leaf)}'.encode())
    digest.update(np.ascontiguousarray(leaf, np.float32))
  return digest.hexdigest()
