# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Settings that a configuration refuses, and values derived from it."""

import pytest

from tests.realm_jax.nn import tiny


@pytest.mark.parametrize('pooling', ['pooler', 'cls', 'mean'])
def test_poolers_follow_from_the_pooling(pooling):
  for given in (False, True):
    c = tiny.config(
      pooling=pooling,
      embedder=tiny.bert_config(pooler=given),
      encoder=tiny.bert_config(pooler=given),
    )
    assert c.embedder_bert.pooler == (pooling == 'pooler')
    assert not c.encoder_bert.pooler


def test_vector_size():
  assert tiny.config().vector_size == 5
  assert tiny.config(projection_size=0).vector_size == 8


@pytest.mark.usefixtures('unchecked')
@pytest.mark.parametrize(
  ('fields', 'message'),
  [
    ({'encoder': tiny.bert_config(vocab_size=30)}, 'vocab_size is 29 and 30'),
    ({'pooling': 'max'}, "pooling='max': expected one of .*'mean'"),
    ({'projection_init': 'eye'}, "projection_init='eye': expected one of"),
    ({'projection_init': 'identity'}, 'embedder.d_model; got 5 and 8'),
    ({'projection_size': -1}, 'projection_size=-1: expected'),
    ({'projection_norm_eps': 0.0}, 'projection_norm_eps=0.0: expected'),
    ({'projection_norm_scale': -1.0}, 'projection_norm_scale=-1.0: expected'),
    ({'score_scale': 0.0}, 'score_scale=0.0: expected .*above 0'),
    ({'projection_dropout_rate': 1.0}, 'projection_dropout_rate=1.0: expected'),
  ],
)
def test_what_does_not_fit_is_named(fields, message):
  with pytest.raises(ValueError, match=message):
    tiny.config(**fields)
