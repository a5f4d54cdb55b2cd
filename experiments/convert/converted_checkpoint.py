# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The checkpoint of converted parameters, to which data may be added later."""

from collections.abc import Mapping
import json
from typing import Any

from absl import logging
import ml_collections

from experiments.engine import checkpoint_writer
from retrieval.index import index_versions
from retrieval.store import checkpoints


def save(
  workdir: str,
  params: Any,
  config: ml_collections.ConfigDict,
  *,
  step: int,
  prints: Mapping[str, str],
  version: str,
) -> bool:
  """Write a checkpoint, or add data to the checkpoint of the same parameters.

  Args:
    version: name of the index version that the model retrieves from; '' for the
      version of its own parameters.

  Raises:
    ValueError: if the folder has a checkpoint of other parameters or other
      data.
  """
  try:
    saved = checkpoints.find(workdir)
  except FileNotFoundError:
    saved = None
  fields = json.loads(config.to_json())
  if saved is not None:
    there, _ = checkpoints.load_params(workdir)
    old, new = (index_versions.params_fingerprint(x) for x in (there, params))
    if old != new:
      raise ValueError(
        f'{workdir}: holds a checkpoint with parameters {old}, but those to '
        f'convert are {new}; name another --workdir.'
      )
    _check_fits(workdir, saved, prints, version)
    same = fields == json.loads(saved.config.to_json())
    if {*saved.fingerprints} > {*prints} or (
      same and saved.fingerprints == prints
    ):
      logging.info('%s holds all of this already.', workdir)
      return False
    logging.info('%s holds these very parameters; data are added.', workdir)
  checkpoint_writer.save_params(
    workdir,
    params,
    config=fields,
    step=step if saved is None else saved.step,
    fingerprints=prints,
    index_version=version,
    replace=saved is not None,
  )
  return True


def _check_fits(workdir, saved, prints, version) -> None:
  """Refuse data or an index version other than the checkpoint's."""
  for name, new in prints.items():
    old = saved.fingerprints.get(name, new)
    if old != new:
      raise ValueError(
        f'{workdir}: its checkpoint belongs to {name} {old}, but {new} is to be '
        'added; name another --workdir.'
      )
  if {'blocks'} <= {*prints} & {*saved.fingerprints}:
    if version != saved.index_version:
      own = 'of its own parameters'
      raise ValueError(
        f'{workdir}: its checkpoint retrieves from index version '
        f'{saved.index_version or own}, --block_embedder makes '
        f'{version or "one " + own}; name another --workdir.'
      )
