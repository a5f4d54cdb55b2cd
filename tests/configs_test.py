# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Every config, at full size by shapes alone and at test size for real."""

import importlib
import pathlib

import pytest

from configs import retro_base

NAMES = sorted(
  path.stem
  for path in pathlib.Path(retro_base.__file__).parent.glob('retro_pretrain_*')
)


def _config(name, arg):
  return importlib.import_module(f'configs.{name}').get_config(arg)


def test_there_are_configs():
  assert len(NAMES) >= 6


@pytest.mark.parametrize('name', NAMES)
def test_the_twin_differs_in_one_field(name):
  base, twin = _config(name, 'base').to_dict(), _config(name, 'twin').to_dict()
  assert {k for k in base if base[k] != twin[k]} == {'retrieval'}


@pytest.mark.parametrize('name', NAMES)
def test_an_unknown_argument_is_named(name):
  with pytest.raises(ValueError, match="'huge'.*twin_test"):
    _config(name, 'huge')
