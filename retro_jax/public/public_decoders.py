# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""GPT-2 as a baseline of RETRO: fields of the config and parameters.

`llama_layouts` has Llama and its relatives. Nothing is read here: the arguments are
names and arrays.
"""

from collections.abc import Callable, Iterable, Mapping
import re
import types
from typing import Annotated, Any

import numpy as np

from retrieval import settings as settings_lib
from retro_jax.nn.config import RetroConfig

Arrays = Mapping[str, np.ndarray]
Whole = Annotated[int, settings_lib.Range(1)]
_ACTIVATIONS = {
  'gelu_new': 'gelu_tanh',
  'gelu_pytorch_tanh': 'gelu_tanh',
  'gelu': 'gelu',
  'relu': 'relu',
}
_GPT2_SIZES = ('n_embd', 'n_head', 'n_layer', 'n_positions')
# Buffers that GPT-2's files may hold: its causal mask.
_GPT2_BUFFERS = re.compile(r'h\.\d+\.attn\.(masked_)?bias$')


class Taken:
  """Arrays by name, of which every one must be taken, with its shape."""

  def __init__(self, arrays: Arrays):
    self._arrays, self._left = arrays, {*arrays}

  def __contains__(self, name: str) -> bool:
    return name in self._arrays

  def __call__(self, name: str, *shape: int) -> np.ndarray:
    """Return an array in float32.

    Raises:
      ValueError: when it is missing, of another shape or not finite.
    """
    if name not in self._arrays:
      raise ValueError(f'tensor {name} is missing')
    self._left.discard(name)
    array = np.asarray(self._arrays[name], np.float32)
    if array.shape != shape:
      raise ValueError(f'tensor {name} is {array.shape}, expected {shape}')
    if not np.isfinite(array).all():
      raise ValueError(f'tensor {name} holds a value that is not finite')
    return array

  def finish(self) -> None:
    """Raise ValueError if an array was not taken."""
    if self._left:
      raise ValueError(f'tensors {sorted(self._left)[:5]} are of no use here')


def checked(name: str, value: Any, hint: Any = Whole) -> Any:
  """Return a setting; ValueError names it where it does not fit the annotation."""
  settings_lib.check_value(name, value, hint)
  return float(value) if hint is float else value


def check_rows(
  arrays: Arrays, names: Iterable[str], vocabulary: Mapping[str, int]
) -> None:
  """Raise ValueError for tokens without a row of the tables [V, D] of `names`."""
  for name in {*names} & {*arrays}:
    rows = len(np.atleast_1d(arrays[name]))
    if beyond := [token for token, i in vocabulary.items() if i >= rows]:
      raise ValueError(
        f'tensor {name} has {rows} rows, none for the tokens {beyond[:5]}'
      )


def gpt2_fields(settings: Mapping[str, Any]) -> dict[str, Any]:
  """Fields of RetroConfig for GPT-2's decoder.

  Args:
    settings: config.json of Hugging Face's GPT2LMHeadModel.

  Returns:
    The decoder's fields but vocab_size.

  Raises:
    ValueError: for another architecture, or a choice that is not here.
  """
  width, heads, layers, positions = (
    checked(name, settings.get(name)) for name in _GPT2_SIZES
  )
  for name in ('scale_attn_by_inverse_layer_idx', 'add_cross_attention'):
    if settings.get(name):
      raise ValueError(f'{name}={settings[name]}; expected False')
  activation = str(settings.get('activation_function', 'gelu_new'))
  if activation not in _ACTIVATIONS:
    raise ValueError(
      f'activation_function {activation!r}; expected one of {[*_ACTIVATIONS]}'
    )
  return {
    'd_model': width,
    'd_ff': checked('n_inner', settings.get('n_inner') or 4 * width),
    'num_heads': heads,
    'head_dim': width // heads,
    'num_layers': layers,
    'decoder': {
      'positions': 'absolute',
      'max_positions': positions,
      'num_kv_heads': 0,
      'gated': False,
      'norm': 'layer',
    },
    'norm_epsilon': checked(
      'layer_norm_epsilon', settings.get('layer_norm_epsilon', 1e-5), float
    ),
    'activation': _ACTIVATIONS[activation],
    'projection_biases': True,
    'ff_biases': True,
    'scale_logits': bool(settings.get('scale_attn_weights', True)),
    'tie_readout': bool(settings.get('tie_word_embeddings', True)),
  }


def gpt2_params(
  arrays: Arrays,
  config: RetroConfig,
  vocabulary: Mapping[str, int] = types.MappingProxyType({}),
) -> dict[str, Any]:
  """Parameters of a baseline from GPT-2's tensors.

  Args:
    arrays: under the names of Hugging Face's GPT2LMHeadModel or GPT2Model.
      Linear layers are [in, out], and q, k and v one of them.
    vocabulary: ids of tokens, each of which needs an embedding.

  Returns:
    The tree of `model.Retro`, float32.

  Raises:
    ValueError: naming a tensor that is missing, unknown, of another shape or not
      finite, or tokens without an embedding.
  """
  named = {name.removeprefix('transformer.'): x for name, x in arrays.items()}
  check_rows(named, ('wte.weight', 'lm_head.weight'), vocabulary)
  take = Taken({k: x for k, x in named.items() if not _GPT2_BUFFERS.match(k)})
  c, d = config, config.d_model

  def linear(name, new, rows, columns):
    return {
      new: take(f'{name}.weight', rows, columns),
      f'{new}_bias': take(f'{name}.bias', columns),
    }

  def norm(name):
    scale, bias = (take(f'{name}.{part}', d) for part in ('weight', 'bias'))
    return {'scale': scale, 'bias': bias}

  def layer(i):
    attention = linear(f'h.{i}.attn.c_proj', 'o', d, d)
    together = linear(f'h.{i}.attn.c_attn', '', d, 3 * d)
    for end, array in together.items():
      for name, part in zip('qkv', np.split(array, 3, axis=-1), strict=True):
        attention[f'{name}{end}'] = part
    feed_forward = {
      **linear(f'h.{i}.mlp.c_fc', 'w1', d, c.d_ff),
      **linear(f'h.{i}.mlp.c_proj', 'w2', c.d_ff, d),
    }
    norms = norm(f'h.{i}.ln_1'), norm(f'h.{i}.ln_2')
    return norms[0], attention, norms[1], feed_forward

  params = {
    'embedding': take('wte.weight', c.vocab_size, d),
    'positions': {'table': take('wpe.weight', c.decoder.max_positions, d)},
    'final_norm': norm('ln_f'),
    **branches(c, layer),
  }
  if not c.tie_readout:
    params['readout'] = take('lm_head.weight', c.vocab_size, d)
  elif 'lm_head.weight' in take:  # the embeddings once more
    take('lm_head.weight', c.vocab_size, d)
  take.finish()
  return params


def branches(config: RetroConfig, layer: Callable[[int], tuple]) -> dict:
  """The branches of all layers, each as `layer` gives it."""
  tree = {}
  for i in range(config.num_layers):
    norm, attention, ff_norm, feed_forward = layer(i)
    p = i + 1
    tree[f'layer_{p}_attn'] = {'norm': norm, 'attention': attention}
    tree[f'layer_{p}_ffw'] = {'norm': ff_norm, **feed_forward}
  return tree
