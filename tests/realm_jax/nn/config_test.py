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
