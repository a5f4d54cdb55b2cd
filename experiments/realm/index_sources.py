# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Where the index that a run needs first may stand already."""

from collections.abc import Callable
import pathlib
from typing import Any

from absl import logging
import ml_collections

from realm_jax.nn import config as config_lib
from retrieval.store import checkpoints

INDEX = 'index'


def find(
  start: str,
  model_cfg: config_lib.RealmConfig,
  read_model: Callable[[ml_collections.ConfigDict], config_lib.RealmConfig],
) -> tuple[pathlib.Path, ...]:
  """Folders of index versions for `index_builder.Builder.sources`.

  Equal parameters make equal vectors only where they are computed with alike.

  Args:
    start: workdir of the run whose embedder another run starts from, or ''.
    model_cfg: of the run that starts.
    read_model: reads the model off a config.

  Returns:
    The folder of that run, or none.
  """
  folder = pathlib.Path(start) / INDEX
  if not start or not folder.is_dir():
    return ()
  try:
    theirs = read_model(checkpoints.find(start).config)
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
      *(folder, '; '.join(changed)),
    )
  return () if changed else (folder,)


def _settings(config: config_lib.RealmConfig) -> dict[str, Any]:
  """What vectors follow from beside the parameters and their shapes."""
  bert = config.embedder
  return {
    'embedder.num_heads': bert.num_heads,
    'embedder.activation': bert.activation,
    'embedder.layer_norm_eps': bert.layer_norm_eps,
    'embedder.dtype': str(bert.dtype),
    'model.pooling': config.pooling,
    'model.projection_norm_eps': config.projection_norm_eps,
  }
