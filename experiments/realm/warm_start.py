# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Warm starts that other commands train before REALM: ICT and MLM."""

import pathlib

import ml_collections

from experiments.engine import command
from experiments.realm import train as realm_train
from retrieval.store import checkpoints


def make_config(
  config: ml_collections.ConfigDict, name: str
) -> ml_collections.ConfigDict:
  """Return the config of the warm start `name`: ict, mlm or dpr."""
  fields = config.warm_start[name].to_dict()
  optimizer = {
    'learning_rate': fields.pop('learning_rate'),
    'accumulate_steps': 1,  # microbatches would reduce ICT's negatives
  }
  fields['best_metric'] = ''  # that of another task
  changed = command.changed(config, task=name, optimizer=optimizer, **fields)
  with changed.unlocked():
    changed.optimizer.part_scales = {}  # the model has one part only
  return changed


def train(
  config: ml_collections.ConfigDict, name: str, root: pathlib.Path
) -> str:
  """Train a warm start in <root>/<name>, unless it is finished.

  Args:
    config: config of the REALM that starts from it, with its data_dir set.
    name: 'ict' or 'mlm'.
    root: parent of the run's folder.

  Returns:
    The run's folder; '' for an MLM that the config does not need.
  """
  if name == 'mlm' and not config.warm_start.needs_mlm:
    return ''
  wanted = make_config(config, name)
  folder = str(root / name)
  if not is_done(folder, wanted.num_steps):
    realm_train.run(wanted, folder)
  return folder


def is_done(folder: str, num_steps: int) -> bool:
  """Return whether a run has reached its last step."""
  try:
    return checkpoints.find(folder).step >= num_steps
  except FileNotFoundError:
    return False
