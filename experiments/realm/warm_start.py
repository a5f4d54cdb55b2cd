# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""What other commands train before REALM: ICT its embedder, MLM its encoder."""

import pathlib

import ml_collections

from experiments.engine import command
from experiments.realm import ict
from experiments.realm import mlm
from retrieval.store import checkpoints

_RUN = {'ict': ict.run, 'mlm': mlm.run}


def make_config(
  config: ml_collections.ConfigDict, name: str
) -> ml_collections.ConfigDict:
  """The config of a warm start, from that of the REALM it is for."""
  fields = config.warm_start[name].to_dict()
  optimizer = {
    'learning_rate': fields.pop('learning_rate'),
    'accumulate_steps': 1,  # ICT's negatives are of the batch
  }
  changed = command.changed(config, optimizer=optimizer, **fields)
  with changed.unlocked():
    changed.optimizer.part_scales = {}  # only one part is there
  return changed


def train(
  config: ml_collections.ConfigDict, name: str, root: pathlib.Path
) -> str:
  """Trains in <root>/<name>, unless that is done already.

  Args:
    config: of the REALM that starts from it; its data_dir is set.
    name: 'ict' or 'mlm'.
    root: where the run's folder goes.

  Returns:
    That folder; '' for an MLM that the config does not need.
  """
  if name == 'mlm' and not config.warm_start.needs_mlm:
    return ''
  wanted = make_config(config, name)
  folder = str(root / name)
  if not is_done(folder, wanted.num_steps):
    _RUN[name](wanted, folder)
  return folder


def is_done(folder: str, num_steps: int) -> bool:
  """Whether a run has come to its last step."""
  try:
    return checkpoints.find(folder).step >= num_steps
  except FileNotFoundError:
    return False
