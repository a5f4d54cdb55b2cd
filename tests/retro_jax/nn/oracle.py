# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The numpy oracle's configuration and parameters in the model's layout."""

import json
import pathlib

import numpy as np

from retro_jax.nn import retro as model

PATH = pathlib.Path(__file__).parents[2] / 'data' / 'retro_oracle_small.npz'


def load() -> dict[str, np.ndarray]:
  with np.load(PATH) as file:
    return dict(file)


def config(arrays, **overrides) -> model.RetroConfig:
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


def params(arrays) -> dict:
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
