# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A seed gives the same initial parameters in every release."""

import jax
import numpy as np
import pytest

from retrieval.nn import sharding
from retro_jax.nn import initial
from tests.retro_jax.nn import tiny


def test_a_seed_starts_from_known_parameters():
  """Parameters of a module draw in the order in which it makes them."""
  boxed = initial.init_params(jax.random.key(0), tiny.config())
  params = sharding.unbox(boxed)
  found = params['layer_1_attn']['attention']
  sums = {name: float(np.abs(found[name]).sum()) for name in 'qkvro'}
  expected = {'q': 2.03297, 'k': 1.96442, 'v': 1.94462, 'r': 1.86834}
  assert sums == pytest.approx(expected | {'o': 0.67906}, rel=1e-4)
