# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The model equals an independent float64 implementation."""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retrieval.kernels import backend
from retro_jax.nn import retro as model

PATH = pathlib.Path(__file__).parents[2] / 'data' / 'retro_oracle_small.npz'


def _load():
  with np.load(PATH) as file:
    return dict(file)


def _config(arrays, **overrides):
  c = json.loads(str(arrays['config_json']))
  fields = {
    'vocab_size': c['vocab'],
    'd_model': c['d'],
    'd_ff': c['d_ff'],
    'num_heads': c['heads'],
    'head_dim': c['head_dim'],
    'num_layers': c['layers'],
    'cca_layers': tuple(c['P']),
    'chunk_length': c['m'],
    'neighbor_length': c['r'],
    'encoder_d_model': c['enc_d'],
    'encoder_d_ff': c['enc_ff'],
    'encoder_num_heads': c['enc_heads'],
    'encoder_head_dim': c['enc_head_dim'],
    'encoder_num_layers': c['enc_layers'],
    'encoder_ca_layers': tuple(c['P_enc']),
    'norm_epsilon': c['eps'],
    'activation': c['act'],
    'position_base': c['rope_base'],
  }
  return model.RetroConfig(**(fields | overrides))


def _branch(arrays, prefix, module):
  p = {name: arrays[prefix + name] for name in ('q', 'k', 'v', 'o', 'r')}
  p |= {'u': arrays[prefix + 'u'], 'w': arrays[prefix + 'w']}
  p = {'attention': p}
  if module == 'cca':
    p = {'cca': p}
  return {'norm': {'scale': arrays[prefix + 'norm']}} | p


def _layers(arrays, prefix, count):
  out = {}
  for i in range(count):
    base = f'{prefix}layers/{i}/'
    for module in ('attn', 'cca', 'ca'):
      if f'{base}{module}/q' in arrays:
        branch = _branch(arrays, f'{base}{module}/', module)
        out[f'layer_{i + 1}_{module}'] = branch
    out[f'layer_{i + 1}_ffw'] = {
      'norm': {'scale': arrays[f'{base}ffw/norm']},
      'w1': arrays[f'{base}ffw/w1'],
      'w2': arrays[f'{base}ffw/w2'],
    }
  return out


def _params(arrays):
  c = json.loads(str(arrays['config_json']))
  encoder = _layers(arrays, 'param/enc/', c['enc_layers'])
  encoder['final_norm'] = {'scale': arrays['param/enc/final_norm']}
  encoder['conditioning_norm'] = {'scale': arrays['param/enc/cond_norm']}
  return {
    'embedding': arrays['param/emb'],
    'encoder_embedding': arrays['param/enc/emb'],
    'final_norm': {'scale': arrays['param/final_norm']},
    'encoder': encoder,
    **_layers(arrays, 'param/', c['layers']),
  }


@pytest.mark.parametrize(
  ('kind', 'dtype', 'atol'),
  [
    ('cpu', 'float32', 2e-4),
    ('cpu', 'float64', 1e-10),
    ('gpu', 'float32', 2e-4),
    ('gpu', 'float64', 1e-10),
    ('tpu', 'float32', 2e-4),  # its kernels have no float64
  ],
)
def test_oracle(kind, dtype, atol, monkeypatch):
  monkeypatch.setattr(backend, 'is_cpu', lambda: kind == 'cpu')
  monkeypatch.setattr(backend, 'is_tpu', lambda: kind == 'tpu')
  arrays = _load()
  config = _config(arrays, dtype=dtype, param_dtype=dtype)
  tokens = arrays['tokens'][None].astype(np.int32)
  neighbors = arrays['neighbours'][None].astype(np.int32)
  valid = arrays['valid'][None]
  with jax.enable_x64(dtype == 'float64'):
    params = jax.tree.map(lambda x: jnp.asarray(x, dtype), _params(arrays))
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
