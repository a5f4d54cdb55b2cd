# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs of text encoders: their files and their fingerprint."""

import hashlib
import os
import pathlib
from typing import Any

import jax
import numpy as np

from retrieval import tokenization
from retrieval.store import checkpoints

TOKENIZER = 'tokenizer'  # folder beside a run's checkpoints


def load(
  path: str | os.PathLike, task: str, step: str = ''
) -> tuple[Any, Any, tokenization.WordPieceTokenizer]:
  """Load parameters (host arrays), config and tokenizer of a run of `task`.

  Raises:
    FileNotFoundError: if there is no checkpoint.
    ValueError: if it is damaged, of another task, or of another tokenizer.
  """
  params, saved = checkpoints.load_params(str(path), step=step)
  saved_task = getattr(saved.config, 'task', '')
  if saved_task != task:
    raise ValueError(
      f'{path}: a checkpoint of task {saved_task!r}, expected {task!r}.'
    )
  folder = pathlib.Path(path) / TOKENIZER
  tokenizer = tokenization.WordPieceTokenizer(folder)
  made_with = saved.fingerprints[TOKENIZER]
  if made_with != tokenizer.fingerprint:
    raise ValueError(
      f'{folder}: tokenizer {tokenizer.fingerprint}, but the checkpoint was '
      f'trained with {made_with}.'
    )
  return jax.tree.map(np.asarray, params), saved.config, tokenizer


def hash_params(params: Any, settings: bytes = b'') -> str:
  """Hash settings, and names, shapes and values of parameters."""
  digest = hashlib.sha256(settings)
  for path, leaf in jax.tree_util.tree_leaves_with_path(params):
    digest.update(f'{jax.tree_util.keystr(path)}{np.shape(leaf)}'.encode())
    digest.update(np.ascontiguousarray(leaf, np.float32))
  return digest.hexdigest()
