# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""GGUF files of Llama's architecture (SmolLM2 is one), as Hugging Face's layout.

They have other names and turn neighboring pairs.
"""

from collections.abc import Mapping
import re
from typing import Any

import numpy as np

from retro_jax.nn import positions
from retro_jax.public import llama_layouts, public_decoders

_LLAMA_FACTORS = (8.0, 32.0)  # of Llama 3.1 and 3.2
# Part of a layer in a GGUF file -> in Hugging Face's.
_PARTS = {
  'attn_norm': 'input_layernorm',
  'attn_q': 'self_attn.q_proj',
  'attn_k': 'self_attn.k_proj',
  'attn_v': 'self_attn.v_proj',
  'attn_output': 'self_attn.o_proj',
  'ffn_norm': 'post_attention_layernorm',
  'ffn_gate': 'mlp.gate_proj',
  'ffn_up': 'mlp.up_proj',
  'ffn_down': 'mlp.down_proj',
}
# Settings of a GGUF file -> the values that change nothing; () for any, which are read.
_SETTINGS = dict.fromkeys(
  (
    *('block_count', 'context_length', 'vocab_size', 'embedding_length'),
    *('feed_forward_length', 'tensor_data_layout', 'attention.head_count'),
    *('attention.head_count_kv', 'attention.key_length'),
    *('attention.value_length', 'attention.layer_norm_rms_epsilon'),
    *('rope.dimension_count', 'rope.freq_base', 'rope.scale_linear'),
    *('rope.scaling.type', 'rope.scaling.factor', 'rope.scaling.finetuned'),
    'rope.scaling.original_context_length',
    *('rope.scaling.yarn_beta_fast', 'rope.scaling.yarn_beta_slow'),
  ),
  (),
) | {
  'attention.causal': (True,),
  'rope.scaling.attn_factor': (1.0,),
  'rope.scaling.yarn_attn_factor': (1.0,),
  'rope.scaling.yarn_ext_factor': (1.0, -1.0),
}
_REST = {
  'token_embd.weight': 'embed_tokens.weight',
  'output_norm.weight': 'norm.weight',
  'output.weight': 'lm_head.weight',
}


def fields(
  settings: Mapping[str, Any], tied: bool, factors: np.ndarray | None = None
) -> dict[str, Any]:
  """Fields of RetroConfig for the decoder of a GGUF file.

  Args:
    tied: whether the embeddings are the readout.
    factors: the tensor rope_freqs.weight of Llama 3's files, [K / 2].
  """
  kind = settings.get('general.architecture')
  if kind != 'llama':
    raise ValueError(f"architecture {kind!r}; expected 'llama'")
  if number := settings.get('split.no', 0):
    raise ValueError(f'part {number + 1} of several; expected the first')

  def get(name, default=None):
    return settings.get(f'llama.{name}', default)

  def shortest(name, default=None):
    """The number that was meant by one that was stored in float32."""
    value = public_decoders.checked(f'llama.{name}', get(name, default), float)
    return float(str(np.float32(value)))

  _check_settings(settings)
  # As llama.cpp: linear without a type; scale_linear is the older factor.
  factor = 'rope.scaling.factor'
  if get(factor) is None and get('rope.scale_linear') is not None:
    factor = 'rope.scale_linear'
  scaling = {}
  kind = get('rope.scaling.type') or ('linear' if get(factor) else 'none')
  if kind != 'none':
    scaling = {
      'rope_type': kind,
      'factor': shortest(factor),
      'original_max_position_embeddings': get(
        'rope.scaling.original_context_length', get('context_length')
      ),
    }
    for name in ('beta_fast', 'beta_slow'):
      if get(f'rope.scaling.yarn_{name}') is not None:
        scaling[name] = shortest(f'rope.scaling.yarn_{name}')
  if factors is not None:
    scaling = _of_factors(factors, shortest('rope.freq_base', 1e4))
  decoder_fields = llama_layouts.fields(
    {
      'model_type': 'llama',
      'hidden_size': get('embedding_length'),
      'intermediate_size': get('feed_forward_length'),
      'num_attention_heads': get('attention.head_count'),
      'num_hidden_layers': get('block_count'),
      'num_key_value_heads': get('attention.head_count_kv'),
      'head_dim': get('attention.key_length'),
      'rms_norm_eps': shortest('attention.layer_norm_rms_epsilon'),
      'rope_theta': shortest('rope.freq_base', 1e4),
      'rope_scaling': scaling,
      'tie_word_embeddings': tied,
    }
  )
  turned, head_dim = get('rope.dimension_count'), decoder_fields['head_dim']
  if turned not in (None, head_dim):
    raise ValueError(f'{turned} of {head_dim} dimensions of a head are rotary')
  return decoder_fields


def _check_settings(settings: Mapping[str, Any]) -> None:
  """Raise ValueError for settings that change the model in unknown ways."""
  for key, value in settings.items():
    name = key.removeprefix('llama.')
    known = _SETTINGS.get(name, (False, 0))
    if name != key and known and value not in known:
      expected = f'; expected one of {known}' if name in _SETTINGS else ''
      raise ValueError(f'setting {key}={value!r} is not known{expected}')


def arrays(
  tensors: public_decoders.Arrays, head_dim: int
) -> dict[str, np.ndarray]:
  """Return the tensors of a GGUF file as llama_layouts.params takes them."""
  renamed = {}
  for name, array in tensors.items():
    named = re.fullmatch(r'blk\.(\d+)\.(\w+)\.weight', name)
    layer, part = named.groups() if named else ('', '')
    if part in ('attn_q', 'attn_k'):
      # Pairs (2 a, 2 a + 1) of each head to (a, a + K / 2).
      pairs = array.reshape(-1, head_dim // 2, 2, array.shape[-1])
      array = pairs.swapaxes(1, 2).reshape(array.shape)
    if name == 'rope_freqs.weight':
      continue
    if part in _PARTS:
      name = f'layers.{layer}.{_PARTS[part]}.weight'
    renamed[_REST.get(name, name)] = array
  return renamed


def _of_factors(factors: np.ndarray, base: float) -> dict[str, Any]:
  """Settings of llama3's scaling that divides the frequencies by these factors."""
  width = 2 * factors.size
  plain = positions.RotaryScaling().frequencies(width, base)
  for factor in (*_LLAMA_FACTORS, float(factors.max())):
    llama3 = {
      'rope_type': 'llama3',
      'factor': factor,
      'low_freq_factor': 1.0,
      'high_freq_factor': 4.0,
      'original_max_position_embeddings': 8192,
    }
    scaling = llama_layouts.rotary_scaling({'rope_scaling': llama3})
    if np.allclose(
      factors, plain / scaling.frequencies(width, base), rtol=1e-3
    ):
      return llama3
  raise ValueError("rope_freqs.weight: not those of Llama 3's scaling")
