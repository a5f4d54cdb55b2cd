# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Names of ModernBERT's settings and tensors in the Hugging Face layout."""

from collections.abc import Iterator, Mapping
import re
from typing import Any

from retrieval import settings
from retrieval.nn import modern_bert

MODEL = 'modernbert'
WORD = 'embeddings.tok_embeddings.weight'
ACTIVATIONS = {
  'gelu': 'gelu',
  'gelu_new': 'gelu_tanh',
  'gelu_pytorch_tanh': 'gelu_tanh',
  'relu': 'relu',
  'silu': 'silu',
  'swish': 'silu',
}
# The masked-language-model head, which an encoder does not need
REDUNDANT = re.compile(
  r'head\.(dense|norm)\.(weight|bias)|decoder\.(weight|bias)'
)
# Field -> supported values, where it is there
SUPPORTED = {
  'hidden_activation': tuple(ACTIVATIONS),
  'classifier_activation': tuple(ACTIVATIONS),
  'classifier_pooling': ('cls', 'mean'),
  'rope_scaling': (None,),
  'head_dim': (None,),
  'quantization_config': (None,),
}
_ROPE = {  # of each kind of layer, as above
  'rope_type': ('default',),
  'type': ('default',),
  'partial_rotary_factor': (1, None),
}
_FIELDS = {
  'vocab_size': 'vocab_size',
  'd_model': 'hidden_size',
  'd_ff': 'intermediate_size',
  'num_heads': 'num_attention_heads',
  'num_layers': 'num_hidden_layers',
  'max_length': 'max_position_embeddings',
  'layer_norm_eps': 'norm_eps',
  'initializer_range': 'initializer_range',
  **{
    name: name
    for name in (
      *('local_attention', 'norm_bias', 'attention_bias', 'mlp_bias'),
      *('classifier_pooling', 'classifier_bias'),
    )
  },
}
_ACTIVATED = {
  'activation': 'hidden_activation',
  'classifier_activation': 'classifier_activation',
}
_THETAS = {
  modern_bert.GLOBAL: 'global_rope_theta',
  modern_bert.LOCAL: 'local_rope_theta',
}


def make_config(
  source: str, stated: Mapping[str, Any], **overrides
) -> modern_bert.ModernBertConfig:
  """Return the config that a config.json states; absent fields have the defaults.

  Args:
    source: name of the file, for errors.
    stated: its content, with the fields of `SUPPORTED` checked.
    **overrides: fields of `ModernBertConfig`.

  Raises:
    ValueError: naming the field, for a value that is not supported.
  """

  def whole(name, default, hint=settings.Size):
    settings.check_value(f'{source}: {name}', stated.get(name, default), hint)
    return stated.get(name, default)

  values = {x: stated[y] for x, y in _FIELDS.items() if y in stated}
  for ours, theirs in _ACTIVATED.items():
    if theirs in stated:
      values[ours] = ACTIVATIONS[stated[theirs]]
  if stated.get('sliding_window') is not None:  # of transformers 5: one side
    values['local_attention'] = 2 * whole('sliding_window', 0)
  values['layer_types'] = stated.get('layer_types')
  if values['layer_types'] is None:
    layers = modern_bert.ModernBertConfig.num_layers
    layers = whole('num_hidden_layers', layers, settings.SizeOrZero)
    every = whole('global_attn_every_n_layers', 3)
    kinds = modern_bert.GLOBAL, modern_bert.LOCAL
    values['layer_types'] = tuple(kinds[i % every > 0] for i in range(layers))
  values |= _thetas(source, stated) | overrides
  return settings.build(modern_bert.ModernBertConfig, values, source)


def _thetas(source: str, stated: Mapping[str, Any]) -> dict[str, Any]:
  """Return the bases of the angles, under both of their names."""
  rope = stated.get('rope_parameters') or {}
  if (
    not isinstance(rope, dict)
    or not {*rope} <= {*_THETAS}
    or not all(isinstance(x, dict) for x in rope.values())
  ):
    raise ValueError(
      f'{source}: rope_parameters {rope!r}; expected settings of '
      f'{" and ".join(_THETAS)}.'
    )
  values = {name: stated[name] for name in _THETAS.values() if name in stated}
  for kind, name in _THETAS.items():
    of_kind = rope.get(kind, {})
    for field, value in of_kind.items():
      if value not in _ROPE.get(field, (value,)):
        raise ValueError(
          f'{source}: rope_parameters.{kind}.{field} {value!r}; supported: '
          f'{_ROPE[field][0]}.'
        )
    if 'rope_theta' in of_kind:
      values[name] = of_kind['rope_theta']
  if values.get('local_rope_theta', 0) is None:  # of transformers 4
    values['local_rope_theta'] = values.get(
      'global_rope_theta', modern_bert.ModernBertConfig.global_rope_theta
    )
  return values


def _dense(
  ours: str, theirs: str, rows: int, columns: int, bias: bool
) -> Iterator[tuple]:
  yield f'{ours}/kernel', f'{theirs}.weight', (columns, rows)
  if bias:
    yield f'{ours}/bias', f'{theirs}.bias', (columns,)


def _norm(
  ours: str, theirs: str, config: modern_bert.ModernBertConfig
) -> Iterator[tuple]:
  yield f'{ours}/norm/scale', f'{theirs}.weight', (config.d_model,)
  if config.norm_bias:
    yield f'{ours}/norm/bias', f'{theirs}.bias', (config.d_model,)


def encoder_layout(config: modern_bert.ModernBertConfig) -> Iterator[tuple]:
  """Yield (path of the parameter, name of the tensor, shape of the tensor)."""
  d, f = config.d_model, config.d_ff
  yield 'word/embedding', WORD, (config.vocab_size, d)
  yield from _norm('embedding_norm', 'embeddings.norm', config)
  for i in range(config.num_layers):
    ours, theirs, bias = f'layer_{i}', f'layers.{i}', config.attention_bias
    if i:
      yield from _norm(f'{ours}/attention_norm', f'{theirs}.attn_norm', config)
    name = f'{ours}/attention'
    yield from _dense(f'{name}/qkv', f'{theirs}.attn.Wqkv', d, 3 * d, bias)
    yield from _dense(f'{name}/output', f'{theirs}.attn.Wo', d, d, bias)
    yield from _norm(f'{ours}/feed_forward_norm', f'{theirs}.mlp_norm', config)
    bias = config.mlp_bias
    yield from _dense(
      f'{ours}/intermediate', f'{theirs}.mlp.Wi', d, 2 * f, bias
    )
    yield from _dense(f'{ours}/output', f'{theirs}.mlp.Wo', f, d, bias)
  yield from _norm('final_norm', 'final_norm', config)
  if config.pooler:
    bias = config.classifier_bias
    yield from _dense('pooler/dense', 'pooler.dense', d, d, bias)
    yield from _norm('pooler/norm', 'pooler.norm', config)
