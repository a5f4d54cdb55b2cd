# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Do the models compute on a device what independent implementations computed?

The fixtures are those of the tests, which are read from a checkout of the project.
"""

import dataclasses
import importlib
from typing import Any

import jax
import numpy as np

from realm_jax.nn import realm as realm_lib
from realm_jax.objectives import losses
from retro_jax.nn import retro as retro_lib

DTYPES = ('float32', 'bfloat16')


def measure(device: jax.Device) -> list[dict[str, Any]]:
  """Return largest errors beside the largest value, on a device.

  Float32 products are those of `jax.default_matmul_precision('float32')`. An empty
  list where the tests are not at hand.
  """
  try:
    fixtures = [
      importlib.import_module(f'tests.{x}_jax.nn.oracle')
      for x in ('retro', 'realm')
    ]
  except ImportError:
    return []
  found = []
  with (
    jax.default_device(device),
    jax.default_matmul_precision('float32'),
  ):
    for dtype in DTYPES:
      found += [
        {'model': model, 'dtype': dtype, **_error(*compute(fixture, dtype))}
        for model, compute, fixture in zip(
          ('RETRO, logits', 'REALM, gradients'),
          (_retro, _realm),
          fixtures,
          strict=True,
        )
      ]
  return found


def _error(got: Any, want: Any) -> dict[str, float]:
  pairs = zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True)
  pairs = [(np.asarray(a, np.float32), np.asarray(b)) for a, b in pairs]
  return {
    'error': max(float(np.abs(a - b).max()) for a, b in pairs),
    'largest': max(float(np.abs(b).max()) for _, b in pairs),
  }


def _retro(oracle, dtype: str):
  arrays = oracle.load()
  model = retro_lib.Retro(oracle.config(arrays, dtype=dtype))
  params = jax.tree.map(lambda x: x.astype(np.float32), oracle.params(arrays))
  logits = jax.jit(lambda p, *x: model.apply({'params': p}, *x))(
    params,
    arrays['tokens'][None].astype(np.int32),
    arrays['neighbours'][None].astype(np.int32),
    arrays['valid'][None],
  )
  return logits[0], arrays['logits_on']


def _realm(oracle, dtype: str):
  arrays, config = oracle.load('pretrain_step'), oracle.config()
  narrow = {
    name: dataclasses.replace(getattr(config, name), dtype=dtype)
    for name in ('embedder', 'encoder')
  }
  model = realm_lib.Realm(dataclasses.replace(config, **narrow))

  def loss(params, batch):
    return losses.loss(model, params, batch, jax.random.key(0), True)

  grads, _ = jax.jit(jax.grad(loss, has_aux=True))(
    oracle.realm(arrays, 'w/'), oracle.batch(arrays)
  )
  return grads, oracle.realm(arrays, 'grad/')
