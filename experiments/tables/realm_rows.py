# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The pre-trainings that REALM's Tables 1 and 2 stand on, each in its own folder.

ROOT/data holds the data, ROOT/ict and ROOT/mlm the warm starts of embedder and
encoder, ROOT/<name> the REALM of that name. Whatever is done is not done again, so
that the tables share what they have in common.
"""

from collections.abc import Mapping
import pathlib
from typing import Any

import ml_collections

from experiments.engine import command
from experiments.realm import train as realm_train
from experiments.realm import warm_start

# Name of a REALM -> fields of the config that make it (Guu et al. 2020, Table 2).
REALMS: Mapping[str, Mapping[str, Any]] = {
  'salient': {'masker': 'salient'},
  'uniform': {'masker': 'uniform'},
  'span': {'masker': 'span'},
  'stale': {'refresh': {'staleness': 30}},
}
WARM = ('ict', 'mlm')


def train(
  name: str, config: ml_collections.ConfigDict, root: pathlib.Path
) -> str:
  """Trains a run and what it starts from, unless that is done already.

  Args:
    name: of REALMS or WARM.
    config: of REALM; its data_dir is set, and the data are prepared.
    root: where everything goes.

  Returns:
    The run's folder; '' for an MLM that the config does not need.
  """
  if name in WARM:
    return warm_start.train(config, name, root)
  folder = str(root / name)
  if not warm_start.is_done(folder, config.num_steps):
    starts = {
      f'{part}_from': config[f'{part}_from']
      or warm_start.train(config, start, root)
      for part, start in (('embedder', 'ict'), ('encoder', 'mlm'))
    }
    realm_train.run(command.changed(config, **REALMS[name], **starts), folder)
  return folder
