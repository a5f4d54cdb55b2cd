# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""RETRO against retro-pytorch 0.3.9: a forward pass, and the loss and all gradients.

The peer's interpreter imports this module, too.
"""

import functools
import sys
import types

import numpy as np

_MODEL = {
  'vocab_size': 8192, 'd_model': 256, 'd_ff': 1024, 'num_layers': 6, 'num_heads': 8,
  'head_dim': 32, 'chunk_length': 64, 'neighbor_length': 128, 'encoder_num_layers': 2,
  'encoder_d_model': 256, 'encoder_d_ff': 1024, 'encoder_num_heads': 8,
  'encoder_head_dim': 32,
}  # fmt: skip
SIZES = _MODEL | {
  'batch': 4, 'length': 512, 'num_neighbors': 2, 'cca_layers': (3, 6),
}  # fmt: skip
PEERS = ('retro-pytorch',)


def _batch(sizes):
  """Return random tokens and the neighbors of their chunks."""
  draw = functools.partial(np.random.default_rng(0).integers, 1)
  b, length = sizes['batch'], sizes['length']
  shape = b, length // sizes['chunk_length'], sizes['num_neighbors']
  neighbors = draw(sizes['vocab_size'], (*shape, sizes['neighbor_length']))
  return draw(sizes['vocab_size'], (b, length + 1)), neighbors


def _ours(sizes):
  from flax import linen as nn
  import jax
  import optax

  from retro_jax.nn import retro

  fields = {name: sizes[name] for name in _MODEL}
  fields['cca_layers'] = tuple(sizes['cca_layers'])
  model = retro.Retro(retro.RetroConfig(**fields))
  tokens, neighbors = jax.device_put(_batch(sizes))
  chunk = tokens[:, : sizes['chunk_length']]
  params = nn.unbox(jax.jit(model.init)(jax.random.key(0), chunk)['params'])

  @jax.jit
  def forward(params, tokens, neighbors):
    rest = tokens[:, :-1], neighbors, neighbors != 0
    return model.apply({'params': params}, *rest)

  @jax.jit
  @jax.value_and_grad
  def train(params, tokens, neighbors):
    loss = optax.softmax_cross_entropy_with_integer_labels
    return loss(forward(params, tokens, neighbors), tokens[:, 1:]).mean()

  def timed(function):
    jax.block_until_ready(function(params, tokens, neighbors))

  return {'forward': lambda: timed(forward), 'train': lambda: timed(train)}


def _theirs(sizes):
  # The package imports an index builder that the model does not use.
  sys.modules['autofaiss'] = types.ModuleType('autofaiss')
  sys.modules['autofaiss'].build_index = None
  import retro_pytorch
  import torch

  torch.set_num_threads(sizes['num_threads'])
  names = {
    'num_tokens': 'vocab_size', 'max_seq_len': 'length', 'chunk_size': 'chunk_length',
    'enc_dim': 'encoder_d_model', 'enc_depth': 'encoder_num_layers',
    'dec_dim': 'd_model', 'dec_depth': 'num_layers', 'heads': 'num_heads',
    'dim_head': 'head_dim', 'dec_cross_attn_layers': 'cca_layers',
  }  # fmt: skip
  fields = {theirs: sizes[ours] for theirs, ours in names.items()}
  model = retro_pytorch.RETRO(enc_cross_attn_layers=(1,), **fields)
  tokens, neighbors = map(torch.tensor, _batch(sizes))

  def forward():
    model.eval()
    with torch.no_grad():
      model(tokens[:, :-1], retrieved=neighbors)

  def train():
    model.train()
    model.zero_grad(set_to_none=True)
    model(tokens, retrieved=neighbors, return_loss=True).backward()

  return {'forward': forward, 'train': train}


SIDES = {'ours': _ours, 'retro-pytorch': _theirs}
