# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Folders of index versions: of a run, of changed data, of a run before it."""

from collections.abc import Callable
import os
import pathlib
from typing import Any

from absl import logging

from realm_jax.nn import config as config_lib
from retrieval.store import checkpoints

INDEX = 'index'


def index_folder(
  workdir: str | os.PathLike, data_dir: str = ''
) -> pathlib.Path:
  """Return the index folder: beside updated data, else the run's."""
  beside = pathlib.Path(data_dir) / INDEX
  if data_dir and beside.is_dir():
    return beside
  return pathlib.Path(workdir) / INDEX


def to_take_over(
  start: str,
  model_cfg: config_lib.RealmConfig,
  read_model: Callable[[checkpoints.Saved], config_lib.RealmConfig],
) -> tuple[pathlib.Path, ...]:
  """Return the folder whose index a new run may take over, if there is one.

  Equal parameters make equal vectors only under equal settings of the model.
  `start` is the workdir of the run that gives the embedder, or ''.
  """
  folder = pathlib.Path(start) / INDEX
  if not start or not folder.is_dir():
    return ()
  try:
    theirs = read_model(checkpoints.find(start))
  except (FileNotFoundError, ValueError, TypeError, AttributeError) as e:
    logging.warning('%s: no index is taken over from there (%s).', folder, e)
    return ()
  here, there = _settings(model_cfg), _settings(theirs)
  changed = [
    f'{k}: {there[k]!r} -> {here[k]!r}' for k in here if here[k] != there[k]
  ]
  if changed:
    logging.warning(
      '%s: its vectors are not taken over, they were computed with other '
      'settings (%s).',
      folder,
      '; '.join(changed),
    )
  return () if changed else (folder,)


def _settings(config: config_lib.RealmConfig) -> dict[str, Any]:
  """Settings that change the vectors but no parameter's shape."""
  bert = config.embedder
  return {
    'embedder.num_heads': bert.num_heads,
    'embedder.activation': bert.activation,
    'embedder.layer_norm_eps': bert.layer_norm_eps,
    'embedder.dtype': str(bert.dtype),
    'model.pooling': config.pooling,
    'model.projection_norm_eps': config.projection_norm_eps,
  }
