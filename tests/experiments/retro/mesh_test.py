# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""RETRO through the loop on one device and on eight: equal, really sharded."""

import jax
import numpy as np
import pytest

from tests.experiments.engine import tiny_run
from tests.experiments.retro import tiny_config


def _train(root, workdir, devices, **mesh):
  model = {'num_layers': 1, 'cca_layers': (1,), 'encoder_num_layers': 1}
  config = tiny_config.tiny(
    num_steps=3,
    eval_batches=0,
    checkpoint_every=10,
    **{f'model.{name}': value for name, value in model.items()},
    **{f'mesh.{name}': value for name, value in mesh.items()},
  )
  return tiny_run.train(config, root, workdir, devices)


@pytest.fixture(scope='module')
def runs(root, tmp_path_factory):
  folder = tmp_path_factory.mktemp('runs')
  one = _train(root, folder / 'one', jax.devices()[:1], data=1)
  eight = _train(
    root, folder / 'eight', jax.devices(), data=2, fsdp=2, tensor=2
  )
  return one, eight


def test_one_device_equals_eight(runs):
  (_, one), (_, eight) = runs
  assert [row['step'] for row in one] == [row['step'] for row in eight]
  assert len({row['loss'] for row in one}) == 3
  for name in ('loss', 'grad_norm'):
    a, b = ([row[name] for row in rows] for rows in (one, eight))
    np.testing.assert_allclose(a, b, rtol=5e-6, err_msg=name)


@pytest.mark.parametrize(
  'name, shape, part',
  [
    ('embedding', (300, 32), (150, 16)),
    ('layer_1_ffw/w1', (32, 64), (16, 32)),
    ('layer_1_cca/cca/attention/q', (32, 32), (16, 16)),
    ('encoder/layer_1_ca/attention/q', (32, 32), (16, 16)),
  ],
)
def test_large_parameters_are_sharded(runs, name, shape, part):
  _, (state, _) = runs
  x = state.params
  for key in name.split('/'):
    x = x[key]
  assert x.shape == shape
  assert x.sharding.shard_shape(shape) == part
  assert {shard.data.shape for shard in x.addressable_shards} == {part}
