# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Decoders in the layout of Hugging Face's Llama: Llama, SmolLM, Mistral, Qwen.

RMSNorm, rotary positions that turn the pairs (a, a + K / 2), heads that share keys,
SwiGLU (Touvron et al. 2023). Qwen2 adds biases of q, k and v (arXiv 2407.10671),
Qwen3 norms of each head's queries and keys (arXiv 2505.09388), Llama 3 scaled
positions (arXiv 2407.21783). Sliding windows are refused.
"""

from collections.abc import Mapping
import math
import re
import types
from typing import Any

import numpy as np

from retro_jax.nn import positions
from retro_jax.nn.config import RetroConfig
from retro_jax.public import public_decoders

MODEL_TYPES = ('llama', 'mistral', 'qwen2', 'qwen3')
_SIZES = (
  'hidden_size',
  'intermediate_size',
  'num_attention_heads',
  'num_hidden_layers',
)
# What no field of RetroConfig says -> the value without it.
_ABSENT = {'mlp_bias': False, 'partial_rotary_factor': 1.0}
# Kind of scaled rotary positions -> what it needs.
_SCALINGS = {
  'linear': ('factor',),
  'llama3': (
    'factor',
    'low_freq_factor',
    'high_freq_factor',
    'original_max_position_embeddings',
  ),
  'yarn': ('factor', 'original_max_position_embeddings'),
}
_SCALING_FIELDS = {
  'factor': 'factor',
  'original_max_position_embeddings': 'length',
  'low_freq_factor': 'low',
  'high_freq_factor': 'high',
  'beta_fast': 'fast',
  'beta_slow': 'slow',
  'attention_factor': 'growth',
}
# What is read elsewhere.
_IGNORED = (
  *('rope_type', 'type', 'rope_theta', 'partial_rotary_factor'),
  *('truncate', 'mscale', 'mscale_all_dim'),
)
# Buffers that old files hold: the frequencies of rotary positions.
_BUFFERS = re.compile(r'layers\.\d+\.self_attn\.rotary_emb\.inv_freq$')


def fields(settings: Mapping[str, Any]) -> dict[str, Any]:
  """Fields of RetroConfig for a decoder of this layout.

  Args:
    settings: config.json of Hugging Face.

  Returns:
    The decoder's fields but vocab_size.

  Raises:
    ValueError: for another architecture, unknown scaled positions, a sliding window, or
      another choice that is not here.
  """
  kind = settings.get('model_type')
  if kind not in MODEL_TYPES:
    raise ValueError(f'model_type {kind!r}; expected one of {MODEL_TYPES}')
  _check_absent(settings)
  whole = public_decoders.checked
  width, d_ff, heads, layers = (whole(x, settings.get(x)) for x in _SIZES)
  shared = whole(
    'num_key_value_heads', settings.get('num_key_value_heads') or heads
  )
  head_dim = whole('head_dim', settings.get('head_dim') or width // heads)
  activation = settings.get('hidden_act', 'silu')
  if activation != 'silu':
    raise ValueError(f"hidden_act {activation!r}; expected 'silu'")
  return {
    'd_model': width,
    'd_ff': d_ff,
    'num_heads': heads,
    'head_dim': head_dim,
    'num_layers': layers,
    'decoder': {
      'positions': 'rotary',
      'rotary_base': _rotary_base(settings),
      'rotary_scaling': rotary_scaling(settings),
      'max_positions': 0,
      'num_kv_heads': shared,
      'gated': True,
      'norm': 'rms',
      'head_norms': kind == 'qwen3',
    },
    'norm_epsilon': public_decoders.checked(
      'rms_norm_eps', settings.get('rms_norm_eps', 1e-6), float
    ),
    'activation': 'silu',
    'projection_biases': kind == 'qwen2'
    or bool(settings.get('attention_bias', False)),
    'ff_biases': False,
    'tie_readout': bool(settings.get('tie_word_embeddings', False)),
  }


def _check_absent(settings: Mapping[str, Any]) -> None:
  """Raise ValueError for what the decoder of RETRO does not do."""
  if stored := settings.get('quantization_config'):
    kind = stored.get('quant_method') if isinstance(stored, dict) else stored
    raise ValueError(f'quantization_config of {kind!r}; expected plain weights')
  for name, value in _ABSENT.items():
    if settings.get(name) not in (None, value):
      raise ValueError(f'{name}={settings[name]!r}; expected {value}')
  # Qwen's files name a window that use_sliding_window turns off.
  window = settings.get('sliding_window')
  if settings.get('use_sliding_window', True) and window is not None:
    raise ValueError(f'sliding_window={window!r}; expected none')
  others = {*(settings.get('layer_types') or ())} - {'full_attention'}
  if others:
    raise ValueError(f'layer_types {sorted(others)}; expected full_attention')


def _rope(settings: Mapping[str, Any]) -> dict[str, Any]:
  """Settings of rotary positions under both of their names."""
  rope = {
    name: value
    for key in ('rope_scaling', 'rope_parameters')
    for name, value in (settings.get(key) or {}).items()
  }
  return rope.get('full_attention', rope)  # newest files: by kind of layer


def _rotary_base(settings: Mapping[str, Any]) -> float:
  """The base of the frequencies; newer files have it in rope_parameters."""
  base = _rope(settings).get('rope_theta', settings.get('rope_theta', 1e4))
  return public_decoders.checked('rope_theta', base, float)


def rotary_scaling(settings: Mapping[str, Any]) -> positions.RotaryScaling:
  """Scaling of the frequencies; ValueError for another kind or unknown settings."""
  rope = _rope(settings)
  if rope.get('partial_rotary_factor', 1.0) != 1.0:
    raise ValueError(
      f'partial_rotary_factor={rope["partial_rotary_factor"]!r}; expected 1.0'
    )
  kind = rope.get('rope_type', rope.get('type'))
  if kind is None and (rest := sorted({*rope} & {*_SCALING_FIELDS})):
    raise ValueError(f'rope_scaling: {rest} without rope_type')
  if kind in ('default', None):
    return positions.RotaryScaling()
  if kind not in _SCALINGS:
    raise ValueError(
      f'rotary positions scaled by {kind!r}; expected one of {sorted(_SCALINGS)}'
    )
  if missing := {*_SCALINGS[kind]} - {*rope}:
    raise ValueError(f'rope_scaling of {kind}: lacks {sorted(missing)}')
  known = _SCALING_FIELDS | dict.fromkeys(_IGNORED, '')
  if others := {*rope} - {*known}:
    raise ValueError(f'rope_scaling: {sorted(others)} are not known')
  values = {
    ours: public_decoders.checked(f'rope_scaling.{name}', rope[name], float)
    for name, ours in _SCALING_FIELDS.items()
    if rope.get(name) is not None and not isinstance(rope[name], bool)
  }
  if 'length' in values:
    values['length'] = int(values['length'])
  if kind == 'yarn':
    values['whole'] = bool(rope.get('truncate', True))
    values.setdefault('growth', _growth(rope, values['factor']))
  return positions.RotaryScaling(kind=kind, **values)


def _growth(rope: Mapping[str, Any], factor: float) -> float:
  """How yarn multiplies queries and keys where a file does not say it."""

  def of(scale):
    return 0.1 * scale * math.log(factor) + 1 if factor > 1 else 1.0

  if rope.get('mscale') and rope.get('mscale_all_dim'):
    return of(rope['mscale']) / of(rope['mscale_all_dim'])
  return of(1.0)


def params(
  arrays: public_decoders.Arrays,
  config: RetroConfig,
  vocabulary: Mapping[str, int] = types.MappingProxyType({}),
) -> dict[str, Any]:
  """Parameters of a baseline from the tensors of such a decoder.

  Args:
    arrays: linear layers as [out, in]. Rows of the embeddings past the tokenizer's
      ids are padding, which no text holds: they are left out.
    vocabulary: ids of tokens, each of which needs an embedding.

  Returns:
    The tree of `model.Retro`, float32.

  Raises:
    ValueError: naming a tensor that is missing, unknown, of another shape or not
      finite, or tokens without an embedding.
  """
  named = {name.removeprefix('model.'): x for name, x in arrays.items()}
  c = config
  tables = ('embed_tokens.weight', 'lm_head.weight')
  public_decoders.check_rows(named, tables, vocabulary)
  for name in {*tables} & {*named}:
    if np.ndim(named[name]):
      named[name] = named[name][: c.vocab_size]
  take = public_decoders.Taken(
    {k: x for k, x in named.items() if not _BUFFERS.match(k)}
  )
  d, k = c.d_model, c.head_dim
  rows = {'q': c.num_heads * k, 'o': d}
  rows |= dict.fromkeys('kv', (c.decoder.num_kv_heads or c.num_heads) * k)

  def layer(i):
    of = f'layers.{i}.self_attn'
    attention = {}
    for x, count in rows.items():
      name = f'{of}.{x}_proj'
      columns = rows['q'] if x == 'o' else d
      attention[x] = take(f'{name}.weight', count, columns).T
      if c.projection_biases:
        # Qwen2's output has none.
        absent = x == 'o' and f'{name}.bias' not in take
        attention[f'{x}_bias'] = (
          np.zeros(d, np.float32) if absent else take(f'{name}.bias', count)
        )
    if c.decoder.head_norms:
      for x in ('q_norm', 'k_norm'):
        attention[x] = {'scale': take(f'{of}.{x}.weight', k)}
    norms = (
      {'scale': take(f'layers.{i}.{x}_layernorm.weight', d)}
      for x in ('input', 'post_attention')
    )
    of = f'layers.{i}.mlp'
    feed_forward = {
      'w1': take(f'{of}.gate_proj.weight', c.d_ff, d).T,
      'w3': take(f'{of}.up_proj.weight', c.d_ff, d).T,
      'w2': take(f'{of}.down_proj.weight', d, c.d_ff).T,
    }
    return next(norms), attention, next(norms), feed_forward

  tree = {
    'embedding': take(tables[0], c.vocab_size, d),
    'final_norm': {'scale': take('norm.weight', d)},
    **public_decoders.branches(c, layer),
  }
  if not c.tie_readout:
    tree['readout'] = take(tables[1], c.vocab_size, d)
  elif tables[1] in take:  # the embeddings once more
    take(tables[1], c.vocab_size, d)
  take.finish()
  return tree
