# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/realm/bundles with TensorFlow: random numbers, toy sizes.

  python -m venv tf && tf/bin/pip install tensorflow-cpu
  tf/bin/python tests/data/make_tf_bundles.py

The names are those of the checkpoints that REALM was published with; a and b are
the encoder and the embedder, c the blocks' vectors, d a fine-tuned model with the
optimizer's slots. values.npz holds a few of their variables.
"""

import pathlib

import numpy as np
import tensorflow as tf

V, D, F, P, L, E, S, N = 24, 8, 16, 12, 2, 4, 6, 5
ROOT = pathlib.Path(__file__).parent / 'realm' / 'bundles'


def bert(prefix):
  """Variables of one BERT."""
  norm = {'gamma': (D,), 'beta': (D,)}
  shapes = {
    'embeddings/word_embeddings': (V, D),
    'embeddings/position_embeddings': (P, D),
    'embeddings/token_type_embeddings': (2, D),
  }
  shapes |= {f'embeddings/LayerNorm/{k}': v for k, v in norm.items()}
  for i in range(L):
    layer = f'encoder/layer_{i}'
    dense = {f'attention/self/{x}': (D, D) for x in ('query', 'key', 'value')}
    dense |= {'attention/output/dense': (D, D), 'intermediate/dense': (D, F)}
    dense |= {'output/dense': (F, D)}
    for name, shape in dense.items():
      shapes[f'{layer}/{name}/kernel'] = shape
      shapes[f'{layer}/{name}/bias'] = shape[1:]
    for name in ('attention/output', 'output'):
      for k, v in norm.items():
        shapes[f'{layer}/{name}/LayerNorm/{k}'] = v
  shapes |= {'pooler/dense/kernel': (D, D), 'pooler/dense/bias': (D,)}
  return {f'{prefix}bert/{k}': v for k, v in shapes.items()}


def predictions(prefix):
  """Variables of one masked-language-model head."""
  shapes = {
    'transform/dense/kernel': (D, D),
    'transform/dense/bias': (D,),
    'transform/LayerNorm/gamma': (D,),
    'transform/LayerNorm/beta': (D,),
    'output_bias': (V,),
  }
  return {f'{prefix}cls/predictions/{k}': v for k, v in shapes.items()}


def projection(prefix):
  """Variables of the embedder's projection."""
  return {
    f'{prefix}dense/kernel': (D, E),
    f'{prefix}dense/bias': (E,),
    f'{prefix}LayerNorm/gamma': (E,),
    f'{prefix}LayerNorm/beta': (E,),
  }


def bundles():
  """Name of each bundle -> its variables' shapes."""
  m = 'module/'
  a = bert('') | predictions('')
  b = bert(3 * m) | predictions(3 * m) | projection(2 * m)
  d = bert(4 * m) | predictions(4 * m) | projection(3 * m)
  d |= bert(f'reader/{m}') | predictions(f'reader/{m}')
  d |= {'reader/dense/kernel': (D, 2 * S), 'reader/dense/bias': (2 * S,)}
  d |= {f'reader/layer_normalization/{x}': (S,) for x in ('gamma', 'beta')}
  d |= {'reader/dense_1/kernel': (S, 1), 'reader/dense_1/bias': (1,)}
  slots = {
    f'{name}/{slot}': d[name]
    for name in ('reader/dense/bias', 'reader/dense_1/kernel')
    for slot in ('adam_m', 'adam_v')
  }
  return {
    'bert/variables/variables': a,
    'embedder/variables/variables': b,
    'embedder/encoded/encoded.ckpt': {'block_emb': (N, E)},
    'orqa/model.ckpt-20': d | slots,
  }


def save(prefix, shapes, rng):
  """Writes one bundle; returns its values."""
  values = {
    name: rng.normal(size=shape).astype(np.float32)
    for name, shape in shapes.items()
  }
  if 'orqa' in str(prefix):
    values['global_step'] = np.asarray(20, np.int64)
  prefix.parent.mkdir(parents=True, exist_ok=True)
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    variables = [
      tf.compat.v1.get_variable(k, initializer=v, use_resource=False)
      for k, v in values.items()
    ]
    session.run(tf.compat.v1.global_variables_initializer())
    saver = tf.compat.v1.train.Saver(variables)
    saver.save(session, str(prefix), write_meta_graph=False)
  (prefix.parent / 'checkpoint').unlink()
  return values


def main():
  """Writes all of them."""
  rng = np.random.default_rng(0)
  kept = {}
  for name, shapes in bundles().items():
    values = save(ROOT / name, shapes, rng)
    first = name.replace('/', '.')
    for i, (variable, value) in enumerate(values.items()):
      if i % 7 == 0 or len(values) - i <= 3:
        kept[f'{first}:{variable.replace("/", "|")}'] = value
  np.savez_compressed(ROOT / 'values.npz', **kept)


if __name__ == '__main__':
  main()
