# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The model equals an independent float64 implementation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retrieval.kernels import backend
from retro_jax.nn import retro as model
from tests.retro_jax.nn import oracle


@pytest.mark.parametrize(
  ('kind', 'dtype', 'atol'),
  [
    ('cpu', 'float32', 2e-4),
    ('cpu', 'float64', 1e-10),
    ('gpu', 'float32', 2e-4),
    ('gpu', 'float64', 1e-10),
    # Its kernels have no float64.
    pytest.param('tpu', 'float32', 2e-4, marks=pytest.mark.slow),
  ],
)
def test_oracle(kind, dtype, atol, monkeypatch):
  monkeypatch.setattr(backend, 'is_cpu', lambda: kind == 'cpu')
  monkeypatch.setattr(backend, 'is_tpu', lambda: kind == 'tpu')
  arrays = oracle.load()
  config = oracle.config(arrays, dtype=dtype, param_dtype=dtype)
  tokens = arrays['tokens'][None].astype(np.int32)
  neighbors = arrays['neighbours'][None].astype(np.int32)
  valid = arrays['valid'][None]
  with jax.enable_x64(dtype == 'float64'):
    params = jax.tree.map(
      lambda x: jnp.asarray(x, dtype), oracle.params(arrays)
    )
    retro = model.Retro(config)
    on, state = jax.jit(
      lambda p, *args: retro.apply(
        {'params': p}, *args, mutable=['intermediates']
      )
    )(params, tokens, neighbors, valid)
    off = retro.apply({'params': params}, jnp.asarray(tokens))
    assert on.dtype == dtype
    scores = jax.nn.log_softmax(on[0, :-1])
    scores = np.take_along_axis(np.array(scores), tokens[0, 1:, None], 1)[:, 0]
  trace = state['intermediates']
  pairs = {
    'logits_on': on[0],
    'logits_off': off[0],
    'loglik_on': scores,
    'trace/cond_H': trace['conditioning'][0][0],
  }
  for layer in range(1, config.num_layers + 1):
    pairs[f'trace/H{layer}'] = trace[f'layer_{layer}'][0][0]
  encoded = np.asarray(trace['encoded'][0][0])
  visible = arrays['valid']
  np.testing.assert_allclose(
    encoded[visible], arrays['trace/E'][visible], rtol=0, atol=atol
  )
  for name, value in pairs.items():
    np.testing.assert_allclose(
      value, arrays[name], rtol=0, atol=atol, err_msg=name
    )
