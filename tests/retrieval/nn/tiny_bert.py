# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A small BERT's checkpoint, every number drawn, and the same BERT in NumPy."""

import json
import math

import numpy as np
import safetensors.numpy

V, D, F, H, LAYERS, LENGTH = 40, 16, 24, 2, 2, 10
CONFIG = {
  'vocab_size': V,
  'hidden_size': D,
  'intermediate_size': F,
  'num_attention_heads': H,
  'num_hidden_layers': LAYERS,
  'max_position_embeddings': LENGTH,
  'type_vocab_size': 2,
  'hidden_act': 'gelu',
  'layer_norm_eps': 1e-5,
  'hidden_dropout_prob': 0.2,
  'attention_probs_dropout_prob': 0.3,
}
GELU = np.vectorize(lambda x: 0.5 * x * (1 + math.erf(x / 2**0.5)))
ACTIVATIONS = {
  'gelu': GELU,
  'gelu_new': lambda x: (
    0.5 * x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))
  ),
  'relu': lambda x: np.maximum(x, 0),
}


def make_tensors(v=V, d=D, f=F, layers=LAYERS, length=LENGTH):
  """A checkpoint in the Hugging Face layout, every number drawn."""
  rng = np.random.default_rng(0)
  shapes = {
    'bert.embeddings.word_embeddings.weight': (v, d),
    'bert.embeddings.position_embeddings.weight': (length, d),
    'bert.embeddings.token_type_embeddings.weight': (2, d),
  }
  norms = ['bert.embeddings.LayerNorm', 'cls.predictions.transform.LayerNorm']
  dense = {
    'bert.pooler.dense': (d, d),
    'cls.predictions.transform.dense': (d, d),
  }
  for i in range(layers):
    layer = f'bert.encoder.layer.{i}'
    for name in ('self.query', 'self.key', 'self.value', 'output.dense'):
      dense[f'{layer}.attention.{name}'] = (d, d)
    dense[f'{layer}.intermediate.dense'] = (f, d)
    dense[f'{layer}.output.dense'] = (d, f)
    norms += [
      f'{layer}.attention.output.LayerNorm',
      f'{layer}.output.LayerNorm',
    ]
  for name, shape in dense.items():
    shapes |= {f'{name}.weight': shape, f'{name}.bias': shape[:1]}
  shapes['cls.predictions.bias'] = (v,)
  tensors = {
    name: 0.4 * rng.standard_normal(shape, np.float32)
    for name, shape in shapes.items()
  }
  for name in norms:
    tensors[f'{name}.weight'] = 1 + 0.2 * rng.standard_normal(d, np.float32)
    tensors[f'{name}.bias'] = 0.2 * rng.standard_normal(d, np.float32)
  return tensors


class Reference:
  """BERT in NumPy and float64, straight from the tensors' names."""

  def __init__(self, tensors, activation='gelu'):
    self.t = {k: v.astype(np.float64) for k, v in tensors.items()}
    self.activation = ACTIVATIONS[activation]

  def dense(self, name, x):
    return x @ self.t[f'{name}.weight'].T + self.t[f'{name}.bias']

  def norm(self, name, x):
    name = f'{name}.LayerNorm'
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)
    return x * self.t[f'{name}.weight'] + self.t[f'{name}.bias']

  def embed(self, ids, types):
    name = 'bert.embeddings'
    x = self.t[f'{name}.word_embeddings.weight'][ids]
    x = x + self.t[f'{name}.position_embeddings.weight'][: ids.shape[1]]
    x = x + self.t[f'{name}.token_type_embeddings.weight'][types]
    return self.norm(name, x)

  def layer(self, i, x, mask):
    name = f'bert.encoder.layer.{i}'
    q, k, v = (
      self.dense(f'{name}.attention.self.{part}', x)
      for part in ('query', 'key', 'value')
    )
    y = np.empty_like(x)
    for row in range(len(x)):
      for head in range(H):
        columns = slice(head * D // H, (head + 1) * D // H)
        scores = q[row][:, columns] @ k[row][:, columns].T / (D // H) ** 0.5
        weights = np.exp(scores) * mask[row]
        weights /= weights.sum(-1, keepdims=True)
        y[row][:, columns] = weights @ v[row][:, columns]
    y = self.dense(f'{name}.attention.output.dense', y)
    x = self.norm(f'{name}.attention.output', x + y)
    y = self.activation(self.dense(f'{name}.intermediate.dense', x))
    return self.norm(
      f'{name}.output', x + self.dense(f'{name}.output.dense', y)
    )

  def pool(self, x):
    return np.tanh(self.dense('bert.pooler.dense', x[:, 0]))

  def head(self, x):
    name = 'cls.predictions'
    x = self.activation(self.dense(f'{name}.transform.dense', x))
    x = self.norm(f'{name}.transform', x)
    table = self.t['bert.embeddings.word_embeddings.weight']
    return x @ table.T + self.t[f'{name}.bias']

  def encode(self, ids, mask, types):
    x = self.embed(ids, types)
    for i in range(LAYERS):
      x = self.layer(i, x, mask)
    return x


def save(path, tensors, **fields):
  """Writes a folder; `fields` override CONFIG."""
  path.mkdir(exist_ok=True)
  (path / 'config.json').write_text(json.dumps(CONFIG | fields))
  safetensors.numpy.save_file(tensors, path / 'model.safetensors')
  return path
