# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The mesh, the rule table and what they make of parameters and batches."""

import logging

from flax import linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import AxisType, PartitionSpec as P
import numpy as np
import pytest

from retrieval.nn import partitioning, sharding


def test_mesh_is_auto_and_fills():
  mesh = sharding.make_mesh(data=-1, fsdp=2, tensor=2)
  assert dict(mesh.shape) == {'data': 2, 'fsdp': 2, 'tensor': 2}
  assert mesh.axis_types == (AxisType.Auto,) * 3


@pytest.mark.parametrize(
  'sizes', [(3, 1, 1), (-1, 3, 1), (-1, -1, 1), (0, 1, 1), (16, 1, 1)]
)
def test_mesh_that_does_not_fit(sizes):
  with pytest.raises(ValueError, match=r'mesh\(data='):
    sharding.make_mesh(*sizes)


def test_every_logical_axis_has_a_rule():
  assert set(sharding.RULES) == partitioning.AXES


@pytest.mark.parametrize(
  'names, spec',
  [
    (('batch', 'length', 'embed'), P(('data', 'fsdp'), None, None)),
    (('embed', 'mlp'), P('fsdp', 'tensor')),
    (('vocab', 'embed'), P('tensor', 'fsdp')),
    (('heads', 'mlp'), P('tensor', None)),
  ],
)
def test_rules(names, spec):
  assert nn.logical_to_mesh_axes(names, sharding.make_rules()) == spec


def test_rules_can_be_overridden():
  rules = sharding.make_rules({'embed': '', 'vocab': ['fsdp', 'tensor']})
  spec = nn.logical_to_mesh_axes(('vocab', 'embed'), rules)
  assert spec == P(('fsdp', 'tensor'), None)


def test_an_unknown_axis_raises():
  with pytest.raises(ValueError, match='layers'):
    partitioning.partitioned(nn.initializers.zeros, 'layers', 'embed')
  with pytest.raises(ValueError, match='layers'):
    partitioning.constrain(jnp.zeros(4), 'layers')


def test_dimension_that_does_not_divide_is_replicated_and_named(caplog):
  mesh = sharding.make_mesh(1, 4, 2)
  with caplog.at_level(logging.WARNING, logger='absl'):
    init = partitioning.partitioned(nn.initializers.zeros, 'embed', 'mlp')
    boxed = jax.eval_shape(lambda: {'w': init(jax.random.key(0), (6, 4))})
    found = sharding.tree_shardings(boxed, mesh)
  assert found['w'].spec == P(None, 'tensor')
  assert "['w']: dimension 0 (embed) of size 6" in caplog.text


def test_unboxed_parameters_are_replicated():
  mesh = sharding.make_mesh(1, 4, 2)
  abstract = {'b': jax.ShapeDtypeStruct((8,), jnp.float32)}
  assert sharding.tree_shardings(abstract, mesh)['b'].spec == P()


def test_global_batch_splits_rows():
  rows = sharding.batch_sharding(sharding.make_mesh(2, 2, 2), 8)
  x = np.arange(24).reshape(8, 3)
  batch = sharding.global_batch({'x': x}, rows)['x']
  np.testing.assert_array_equal(batch, x)
  assert batch.addressable_shards[0].data.shape == (2, 3)
