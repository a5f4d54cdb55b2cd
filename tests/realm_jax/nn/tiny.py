# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Small configurations, parameters and batches."""

from flax import linen as nn
import jax
import numpy as np

from realm_jax.nn import config as config_lib, initialize
from retrieval.nn import bert

B, K, Q, T, M, V = 2, 3, 6, 7, 3, 29
J = Q + T


def bert_config(**overrides) -> bert.BertConfig:
  fields = {
    'vocab_size': V,
    'd_model': 8,
    'd_ff': 12,
    'num_heads': 2,
    'num_layers': 1,
    'max_length': J,
    'dropout_rate': 0.0,
    'attention_dropout_rate': 0.0,
  }
  return bert.BertConfig(**(fields | overrides))


def config(**overrides) -> config_lib.RealmConfig:
  fields = {
    'embedder': bert_config(),
    'encoder': bert_config(d_model=12, num_heads=3),
    'projection_size': 5,
    'projection_dropout_rate': 0.0,
  }
  return config_lib.RealmConfig(**(fields | overrides))


def params(c: config_lib.RealmConfig, seed: int = 0, **kwargs) -> dict:
  init = lambda: initialize.random_params(jax.random.key(0), c, **kwargs)  # noqa: E731
  return draw(nn.unbox(jax.eval_shape(init)), seed)


def draw(shapes, seed: int = 0):
  """Parameters far from initialisation: biases and scales too."""
  rng = np.random.default_rng(seed)

  def leaf(path, x):
    value = rng.standard_normal(x.shape) * (0.7 if x.ndim > 1 else 0.3)
    return (value + ('scale' in str(path[-1]))).astype(x.dtype)

  return jax.tree_util.tree_map_with_path(leaf, shapes)


def batch(seed: int = 0, batch_size: int = B) -> dict[str, np.ndarray]:
  """A batch with padding, an invalid candidate and a position no target."""
  rng = np.random.default_rng(seed)
  ids = lambda *shape: rng.integers(0, V, (batch_size, *shape), np.int32)  # noqa: E731

  def rows(name, *shape):
    lengths = rng.integers(3, shape[-1] + 1, (batch_size, *shape[:-1], 1))
    at = np.arange(shape[-1])
    return {
      f'{name}_ids': ids(*shape),
      f'{name}_mask': at < lengths,
      f'{name}_types': (at >= lengths // 2).astype(np.int32),
    }

  valid = np.ones((batch_size, K), bool)
  valid[0, -1] = False
  mask = np.ones((batch_size, M), bool)
  mask[0, 1:] = False
  found = rows('query', Q) | rows('candidate', K, T) | rows('joint', K, J)
  del found['query_types']
  return found | {
    'mlm_positions': np.sort(rng.integers(0, 3, (batch_size, M), np.int32)),
    'mlm_targets': ids(M),
    'mlm_mask': mask,
    'candidate_valid': valid,
  }
