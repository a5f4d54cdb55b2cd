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
# The masked-language-model head, which an encoder does not need
REDUNDANT = re.compile(
  r'head\.(dense|norm)\.(weight|bias)|decoder\.(weight|bias)'
)
# Field -> supported values, where it is there
SUPPORTED = {
  'is_decoder': (False, None),
  'add_cross_attention': (False, None),
  'classifier_activation': ('gelu',),
  **dict.fromkeys(
    ('norm_bias', 'attention_bias', 'mlp_bias', 'classifier_bias'), (False,)
  ),
  **dict.fromkeys(
    ('rope_scaling', 'sliding_window', 'head_dim', 'quantization_config'),
    (None,),
  ),
}
_SAME = 'vocab_size', 'initializer_range', 'classifier_pooling', 'layer_types'
_SAME += 'global_attn_every_n_layers', 'local_attention'
_SAME += 'global_rope_theta', 'local_rope_theta'
_FIELDS = {name: name for name in _SAME} | {
  'hidden_size': 'd_model',
  'intermediate_size': 'd_ff',
  'num_attention_heads': 'num_heads',
  'num_hidden_layers': 'num_layers',
  'max_position_embeddings': 'max_length',
  'norm_eps': 'layer_norm_eps',
}
_THETAS = {
  modern_bert.GLOBAL: 'global_rope_theta',
  modern_bert.LOCAL: 'local_rope_theta',
}


def make_config(
  source: str, stated: Mapping[str, Any], **overrides
) -> modern_bert.ModernBertConfig:
  """Return the config that the fields of `source` state; others have the defaults.

  Those of `SUPPORTED` are checked already; `overrides` are fields of the config.
  ValueError names a field whose value is not supported.
  """
  config = modern_bert.ModernBertConfig
  values = settings.renamed(config, source, stated, _FIELDS)
  values |= _thetas(source, stated) | overrides
  return settings.build(config, values, source)


def _thetas(source: str, stated: Mapping[str, Any]) -> dict[str, Any]:
  """Return the bases of the angles that rope_parameters state."""
  rope = stated.get('rope_parameters') or {}
  if not isinstance(rope, dict) or not all(map(_is_plain, rope.items())):
    raise ValueError(
      f'{source}: rope_parameters {rope!r}; expected those of rope_type default for '
      f'{" and ".join(_THETAS)}.'
    )
  return {
    _THETAS[kind]: x['rope_theta']
    for kind, x in rope.items()
    if 'rope_theta' in x
  }


def _is_plain(kind_and_rope: tuple[str, Any]) -> bool:
  kind, rope = kind_and_rope
  if kind not in _THETAS or not isinstance(rope, dict):
    return False
  whole = rope.get('partial_rotary_factor') in (1, None)
  return whole and rope.get('rope_type', 'default') == 'default'


def encoder_layout(config: modern_bert.ModernBertConfig) -> Iterator[tuple]:
  """Yield (path of the parameter, name of the tensor, shape of the tensor)."""
  d, f = config.d_model, config.d_ff
  dense, norms = {}, {'embedding_norm': 'embeddings.norm'}
  for i in range(config.num_layers):
    ours, theirs = f'layer_{i}', f'layers.{i}'
    if i:
      norms[f'{ours}/attention_norm'] = f'{theirs}.attn_norm'
    norms[f'{ours}/feed_forward_norm'] = f'{theirs}.mlp_norm'
    dense |= {
      f'{ours}/attention/qkv': (f'{theirs}.attn.Wqkv', (3 * d, d)),
      f'{ours}/attention/output': (f'{theirs}.attn.Wo', (d, d)),
      f'{ours}/intermediate': (f'{theirs}.mlp.Wi', (2 * f, d)),
      f'{ours}/output': (f'{theirs}.mlp.Wo', (d, f)),
    }
  norms['final_norm'] = 'final_norm'
  if config.pooler:
    dense['pooler_dense'] = 'pooler.dense', (d, d)
    norms['pooler_norm'] = 'pooler.norm'
  yield 'word/embedding', WORD, (config.vocab_size, d)
  for ours, (theirs, shape) in dense.items():
    yield f'{ours}/kernel', f'{theirs}.weight', shape
  for ours, theirs in norms.items():
    yield f'{ours}/norm/scale', f'{theirs}.weight', (d,)
