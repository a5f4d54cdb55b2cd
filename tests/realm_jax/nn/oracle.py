# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Cases of the Hugging Face port: configuration, parameters, batches."""

import json
import pathlib

import jax
import numpy as np

from realm_jax.nn import config as config_lib
from retrieval.nn import bert, bert_checkpoint

PATH = pathlib.Path(__file__).parents[2] / 'data' / 'realm'


def load(name: str) -> dict[str, np.ndarray]:
  with np.load(PATH / f'{name}.npz') as file:
    return dict(file)


def part(arrays, prefix: str) -> dict[str, np.ndarray]:
  """The arrays under a prefix, without it."""
  n = len(prefix)
  return {k[n:]: v for k, v in arrays.items() if k.startswith(prefix)}


def close(found, expected) -> None:
  np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


def close_gradients(found, expected, rounding=1e-7) -> None:
  """Relative to the largest entry of each array."""

  def check(path, x, y):
    name = jax.tree_util.keystr(path, simple=True, separator='/')
    # Of what is added to all keys, or to all spans, only rounding is left.
    tolerance = 1e-4 * np.abs(y).max()
    if name.endswith(('key/bias', 'span_norm/bias', 'span_score/bias')):
      assert np.abs(y).max() < rounding, name
      tolerance = rounding
    np.testing.assert_allclose(x, y, rtol=0, atol=tolerance, err_msg=name)

  jax.tree_util.tree_map_with_path(check, found, expected)


def config(**overrides) -> config_lib.RealmConfig:
  c = json.loads((PATH / 'config.json').read_text())['config']
  bert_config = bert.BertConfig(
    vocab_size=c['vocab_size'],
    d_model=c['hidden_size'],
    d_ff=c['intermediate_size'],
    num_heads=c['num_attention_heads'],
    num_layers=c['num_hidden_layers'],
    max_length=c['max_position_embeddings'],
    type_vocab_size=c['type_vocab_size'],
    activation='gelu_tanh',
    layer_norm_eps=c['layer_norm_eps'],
    dropout_rate=c['hidden_dropout_prob'],
    attention_dropout_rate=c['attention_probs_dropout_prob'],
    pooler=False,
  )
  fields = {
    'embedder': bert_config,
    'encoder': bert_config,
    'projection_size': c['retriever_proj_size'],
    'projection_dropout_rate': 0.0,
  }
  return config_lib.RealmConfig(**(fields | overrides))


def embedder(tensors) -> dict:
  """Parameters, or gradients, of an Embedder; its head predicts nothing."""
  tensors = {
    k: v for k, v in tensors.items() if not k.startswith('cls.predictions.')
  }
  projection = part(tensors, 'cls.')
  rest = {k: v for k, v in tensors.items() if not k.startswith('cls.')}
  _, params, _ = bert_checkpoint.convert(rest, config().embedder, 'oracle')
  return {
    'bert': params,
    'projection': {
      'kernel': projection['dense.weight'].T,
      'bias': projection['dense.bias'],
    },
    'projection_norm': {
      'scale': projection['LayerNorm.weight'],
      'bias': projection['LayerNorm.bias'],
    },
  }


def encoder(tensors) -> dict:
  """Parameters, or gradients, of an Encoder; its pooler pools nothing."""
  tensors = {k: v for k, v in tensors.items() if '.pooler.' not in k}
  _, params, head = bert_checkpoint.convert(tensors, config().encoder, 'oracle')
  return {'bert': params, 'mlm_head': head}


def realm(arrays, kind: str) -> dict:
  """Parameters ('w/'), gradients or final weights of `pretrain_step`."""
  return {
    'embedder': embedder(part(arrays, f'{kind}scorer/embedder.')),
    'encoder': encoder(part(arrays, f'{kind}encoder/')),
  }


def _inputs(x, prefix: str, ours: str) -> dict[str, np.ndarray]:
  return {
    f'{ours}_ids': x[f'{prefix}input_ids'].astype(np.int32),
    f'{ours}_mask': x[f'{prefix}attention_mask'].astype(bool),
    f'{ours}_types': x[f'{prefix}token_type_ids'].astype(np.int32),
  }


def scorer_batch(arrays, prefix: str = 'in/') -> dict[str, np.ndarray]:
  x = part(arrays, prefix)
  return _inputs(x, '', 'query') | _inputs(x, 'candidate_', 'candidate')


def encoder_batch(arrays, prefix: str = 'in/') -> dict[str, np.ndarray]:
  x = part(arrays, prefix)
  shape = x['input_ids'].shape[:2]
  return _inputs(x, '', 'joint') | {
    'mlm_positions': x['mlm_positions'].astype(np.int32),
    'mlm_targets': x['mlm_targets'].astype(np.int32),
    'mlm_mask': x['mlm_mask_compact'].astype(bool),
    'candidate_valid': np.ones(shape, bool),
  }


def batch(arrays) -> dict[str, np.ndarray]:
  """The batch of `pretrain_step`."""
  return scorer_batch(arrays, 'in/scorer/') | encoder_batch(
    arrays, 'in/encoder/'
  )
