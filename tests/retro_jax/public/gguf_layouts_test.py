# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Scaled positions of GGUF files under each of their names; unknown settings."""

import pytest

from retro_jax.public import gguf_layouts

_SIZES = {
  'embedding_length': 16,
  'feed_forward_length': 24,
  'block_count': 2,
  'context_length': 64,
  'attention.head_count': 2,
  'attention.layer_norm_rms_epsilon': 1e-5,
}


def _decoder(**more):
  named = {f'llama.{k}': v for k, v in {**_SIZES, **more}.items()}
  settings = {'general.architecture': 'llama', **named}
  return gguf_layouts.fields(settings, tied=True)['decoder']


_YARN = {
  'rope.scaling.type': 'yarn',
  'rope.scaling.factor': 4.0,
  'rope.scaling.original_context_length': 32,
  'rope.scaling.yarn_beta_fast': 16.0,
  'rope.scaling.yarn_beta_slow': 2.0,
}
_LINEAR = {'kind': 'linear', 'factor': 4.0}


@pytest.mark.parametrize(
  ('more', 'expected'),
  [
    ({'rope.scaling.factor': 4.0}, _LINEAR),
    ({'rope.scale_linear': 4.0}, _LINEAR),
    ({'rope.scaling.type': 'linear', 'rope.scale_linear': 4.0}, _LINEAR),
    ({'rope.scaling.type': 'linear', 'rope.scaling.factor': 4.0}, _LINEAR),
    (_YARN, {'kind': 'yarn', 'length': 32, 'fast': 16.0, 'slow': 2.0}),
  ],
)
def test_scaled_positions_are_linear_where_no_type_says_otherwise(
  more, expected
):
  scaling = _decoder(**more)['rotary_scaling']
  assert vars(scaling).items() >= expected.items()


def test_no_factor_and_settings_that_change_nothing():
  plain = {'expert_count': 0, 'attention.causal': True, 'vocab_size': 9}
  scaling = _decoder(**plain, **{'rope.scaling.type': 'none'})['rotary_scaling']
  assert scaling.kind == 'none'


@pytest.mark.parametrize(
  ('name', 'value'),
  [
    ('expert_count', 8),
    ('attention.sliding_window', 512),
    ('rope.freq_base_swa', 1e4),
    ('rope.scaling.attn_factor', 0.5),
    ('logit_scale', 0.25),
  ],
)
def test_unknown_settings_are_named(name, value):
  with pytest.raises(ValueError, match=f'llama.{name}'):
    _decoder(**{name: value})
