# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The counts of tables 2 and 10, by the model at full size, and FLOPs."""

from flax import linen as nn
import jax
import numpy as np
import pytest

from retro_jax.nn import config as config_lib, presets, retro as model
from tests.retro_jax.nn import tiny

slow = pytest.mark.slow
MILLIONS = {
  '172m': (172.49, 132.12),
  '425m': (425.46, 368.05),
  '1.5b': (1451.36, 1308.62),
  '7.5b': (7531.53, 6979.32),
}


def _count(config):
  tokens = jax.ShapeDtypeStruct((1, config.chunk_length), np.int32)
  shapes = jax.eval_shape(
    lambda t: nn.unbox(model.Retro(config).init(jax.random.key(0), t)), tokens
  )
  return sum(
    leaf.size
    for path, leaf in jax.tree_util.tree_leaves_with_path(shapes)
    if leaf.ndim == 2 and 'embedding' not in str(path[-1])
  )


@pytest.mark.parametrize('baseline', [False, True])
@pytest.mark.parametrize(
  'name', ['172m', *(pytest.param(x, marks=slow) for x in presets.PRESETS[1:])]
)
def test_table_2(name, baseline):
  config = presets.preset(name, baseline=baseline)
  assert round(_count(config) / 1e6, 2) == MILLIONS[name][baseline]


@slow
def test_table_10():
  for name, layers, millions in (
    ('1.5b', range(9, 25, 3), 1435.1),
    ('7.5b', range(9, 31, 3), 7473.9),
  ):
    config = presets.preset(name, cca_layers=tuple(layers))
    assert round(_count(config) / 1e6, 1) == millions


def test_unknown_fields_are_named():
  with pytest.raises(ValueError, match='d_mdel'):
    presets.preset('172m', d_mdel=3)


@pytest.mark.parametrize(
  'overrides',
  [
    {},
    tiny.LLAMA | {'head_dim': 16},
    {
      'cca_layers': (),
      'ngrams': config_lib.Ngrams(layers=(1, 2, 3), rows=16, width=64),
    },
  ],
)
def test_flops_equal_what_xla_counts(overrides):
  """Without recomputation the compiler's count is near the formula's."""
  sizes = {
    'd_model': 64,
    'd_ff': 256,
    'num_heads': 4,
    'head_dim': 16,
    'chunk_length': 16,
    'neighbor_length': 32,
    'encoder_d_model': 64,
    'encoder_d_ff': 256,
    'encoder_num_heads': 4,
    'encoder_head_dim': 16,
    'vocab_size': 512,
  }
  config = tiny.config(**(sizes | overrides))
  params = tiny.params(config)
  tokens, neighbors, mask = tiny.inputs(config, batch=4, length=128)
  for args, num_neighbors in (((tokens, neighbors, mask), 2), ((tokens,), 0)):
    lowered = jax.jit(lambda p, a: tiny.apply(config, p, *a)).lower(
      params, args
    )
    counted = lowered.compile().cost_analysis()['flops'] / tokens.size
    formula = presets.flops_per_token(config, 128, num_neighbors)
    assert 0.85 < formula / counted < 1.1
