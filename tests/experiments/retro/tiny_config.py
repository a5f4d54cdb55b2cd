# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Config files of RETRO as the dataclasses that commands build of them."""

import importlib
from typing import Any

from experiments.engine import configs, rooms
from retrieval import settings
from tests.retro_jax.data import tiny_data


def build(config, **changes) -> Any:
  """The dataclass of a ConfigDict, with changes such as `{'model.d_ff': 8}`."""
  with config.unlocked():
    for name in changes:  # sections that config files do not list
      section = name.partition('.')[0]
      if '.' in name and section not in config:
        config[section] = {}
    config.update_from_flattened_dict(changes)
  return configs.build(rooms.config_class(config.task), config)


def of(
  name: str = 'retro_pretrain_quickstart', arg: str = 'test', **changes
) -> Any:
  """The dataclass of a config file."""
  config = importlib.import_module(f'configs.{name}').get_config(arg)
  return build(config, **changes)


def tiny(name: str = 'retro_pretrain_quickstart', arg: str = 'test', **changes):
  """The dataclass of a config file, for the lengths of `tiny_data`."""
  sizes = {'chunk_length': tiny_data.M, 'neighbor_length': tiny_data.R}
  fields = {f'model.{name}': value for name, value in sizes.items()}
  return of(name, arg, **fields | changes)


def section(
  verb: str,
  name: str = 'retro_pretrain_quickstart',
  arg: str = 'test',
  **changes,
) -> Any:
  """Return a verb's section of a config file, such as `Evaluate`."""
  config = importlib.import_module(f'configs.{name}').get_config(arg)
  cls = rooms.section(config.task, verb)
  values = config.get(configs.section_name(cls)) or configs.Config()
  values = configs.of(cls, **values.to_dict())
  with values.unlocked():
    values.update_from_flattened_dict(changes)
  return settings.build(cls, values.to_dict(), 'config')
