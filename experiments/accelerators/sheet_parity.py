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


def measure(device: jax.Device) -> list[dict[str, Any]]:
  """Return largest errors beside the largest value, on a device.

  Float32 products are those of `jax.default_matmul_precision('float32')`. An empty
  list where the tests are not at hand.
  """
  found = []
  with jax.default_device(device), jax.default_matmul_precision('float32'):
    for dtype in ('float32', 'bfloat16'):
      for model, system, compute in (
        ('RETRO, logits', 'retro', _retro),
        ('REALM, gradients', 'realm', _realm),
      ):
        try:
          oracle = importlib.import_module(f'tests.{system}_jax.nn.oracle')
        except ImportError:
          return []
        pairs = zip(*map(jax.tree.leaves, compute(oracle, dtype)), strict=True)
        pairs = [(np.asarray(a, np.float32), np.asarray(b)) for a, b in pairs]
        error = max(float(np.abs(a - b).max()) for a, b in pairs)
        largest = max(float(np.abs(b).max()) for _, b in pairs)
        found.append({'model': model, 'dtype': dtype, 'error': error})
        found[-1]['largest'] = largest
  return found


def _retro(oracle, dtype: str):
  """Return our logits and the oracle's."""
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
  """Return our gradients and the oracle's."""
  arrays, config = oracle.load('pretrain_step'), oracle.config()
  narrow = {
    name: dataclasses.replace(getattr(config, name), dtype=dtype)
    for name in ('embedder', 'encoder')
  }
  model = realm_lib.Realm(dataclasses.replace(config, **narrow))

  def loss(params, batch):
    found, _ = losses.loss(model, params, batch, jax.random.key(0), True)
    return found.value

  grads = jax.jit(jax.grad(loss))(
    oracle.realm(arrays, 'w/'), oracle.batch(arrays)
  )
  return grads, oracle.realm(arrays, 'grad/')
