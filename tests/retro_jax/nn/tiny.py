# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Small configurations, parameters and inputs."""

import dataclasses
import functools

from flax import linen as nn
import jax
import numpy as np

from retro_jax.nn import config as config_lib, models, retro as model

# Decoders that are not the paper's.
LLAMA = {
  'positions': 'rotary',
  'rotary_base': 50.0,
  'num_heads': 4,
  'num_kv_heads': 2,
  'head_dim': 6,
  'gated': True,
  'activation': 'silu',
}
GPT2 = {
  'positions': 'absolute',
  'max_positions': 16,
  'norm': 'layer',
  'norm_epsilon': 1e-5,
  'projection_biases': True,
  'ff_biases': True,
}


def config(**overrides) -> model.RetroConfig:
  fields = {
    'vocab_size': 23,
    'd_model': 12,
    'd_ff': 20,
    'num_heads': 2,
    'head_dim': 5,
    'num_layers': 3,
    'cca_layers': (2, 3),
    'chunk_length': 4,
    'neighbor_length': 7,
    'encoder_d_model': 8,
    'encoder_d_ff': 10,
    'encoder_num_heads': 3,
    'encoder_head_dim': 4,
    'encoder_num_layers': 2,
  }
  fields |= overrides
  names = {x.name for x in dataclasses.fields(config_lib.PublicDecoder)}
  own = {name: fields.pop(name) for name in names & {*fields}}
  decoder = config_lib.PublicDecoder(**fields.pop('decoder', {}) | own)
  return model.RetroConfig(decoder=decoder, **fields)


@functools.cache
def _shapes(c):
  tokens = jax.ShapeDtypeStruct((1, c.chunk_length), np.int32)
  init = functools.partial(models.of(c).init, jax.random.key(0))
  return jax.eval_shape(lambda t: nn.unbox(init(t))['params'], tokens)


def params(c: model.RetroConfig, seed: int = 0) -> dict:
  """Parameters far from initialisation: biases, u, w and scales too."""
  rng = np.random.default_rng(seed)

  def draw(path, x):
    size = x.shape[0] ** -0.5 if x.ndim > 1 else 0.3
    if 'embedding' in str(path[-1]):
      size = 1.0
    value = size * rng.standard_normal(x.shape)
    return (value + ('scale' in str(path[-1]))).astype(x.dtype)

  return jax.tree_util.tree_map_with_path(draw, _shapes(c))


def inputs(c, *, batch=2, length=14, neighbors=2, chunks=None, seed=0):
  """tokens [B, L], neighbors and mask [B, C, N, R]."""
  rng = np.random.default_rng(seed)
  chunks = -(-length // c.chunk_length) if chunks is None else chunks
  shape = (batch, chunks, neighbors, c.neighbor_length)
  tokens = rng.integers(0, c.vocab_size, (batch, length), np.int32)
  retrieved = rng.integers(0, c.vocab_size, shape, np.int32)
  return tokens, retrieved, rng.random(shape) < 0.7


@functools.partial(jax.jit, static_argnames=('c', 'train', 'mutable'))
def apply(c, p, *args, **kwargs):
  """One compilation; eager execution would compile every operation."""
  return models.of(c).apply({'params': p}, *args, **kwargs)
