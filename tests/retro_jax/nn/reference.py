# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""RETRO in numpy, one position at a time, from the paper's equations.

Slow on purpose: loops over tokens, heads, neighbors and keys, and no trick that
the model uses. One sequence; `p` is the model's parameter tree in float64.
"""

import math

import numpy as np


def rms_norm(x, scale, epsilon):
  return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + epsilon) * scale


def layer_norm(x, scale, bias, epsilon):
  size = np.sqrt(np.var(x, -1, keepdims=True) + epsilon)
  return (x - x.mean(-1, keepdims=True)) / size * scale + bias


def turn(x, position, base):
  """A pair is a complex number; its angle grows with the position."""
  half = len(x) // 2
  frequencies = np.array([base ** (-a / half) for a in range(half)])
  turned = (x[:half] + 1j * x[half:]) * np.exp(1j * position * frequencies)
  return np.concatenate([turned.real, turned.imag])


def cosine_vector(distance, width, base):
  frequencies = [base ** (-a / width) for a in range(0, width, 2)]
  sines = [math.sin(distance * f) for f in frequencies]
  cosines = [math.cos(distance * f) for f in frequencies]
  return np.array((sines + cosines)[:width])


def activation(name, x):
  if name == 'gelu_tanh':
    return (
      0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    )
  if name == 'gelu':
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
  if name == 'silu':
    return x / (1 + np.exp(-x))
  return np.maximum(x, 0)


class Reference:
  def __init__(self, config, params):
    self.c, self.p = config, params

  def attend(self, p, query, keys, distances, kind):
    """One query vector, a list of visible keys with their distances."""
    c, own = self.c, self.c.decoder
    heads, head_dim = c.num_heads, c.head_dim
    if kind in ('encoder', 'ca'):
      heads, head_dim = c.encoder_num_heads, c.encoder_head_dim
    positions = c.cca_positions or kind == 'encoder'
    shared, base = 1, 0  # heads of queries that read one of keys; of angles
    if kind == 'decoder':
      positions = own.positions == 'relative'
      shared = heads // (own.num_kv_heads or heads)
      base = own.rotary_base if own.positions == 'rotary' else 0
    if not keys:
      return np.zeros_like(query)

    def project(name, x):
      return x @ p[name] + p.get(f'{name}_bias', 0)

    q = project('q', query)
    mixed = []
    for h in range(heads):
      s = slice(h * head_dim, (h + 1) * head_dim)
      at = h // shared * head_dim
      t = slice(at, at + head_dim)
      u = p['u'][s] if 'u' in p else np.zeros(head_dim)
      w = p['w'][s] if 'w' in p else np.zeros(head_dim)
      logits, values = [], []
      for key, d in zip(keys, distances, strict=True):
        k = project('k', key)[t]
        # Only the distance counts; half of it goes to either side here.
        logit = (q[s] + u) @ k
        if base:
          logit = turn(q[s], d / 2, base) @ turn(k, -d / 2, base)
        elif positions:
          r = cosine_vector(d, len(query), self.c.position_base) @ p['r']
          logit += (q[s] + w) @ r[s]
        logits.append(logit / (head_dim**0.5 if self.c.scale_logits else 1))
        values.append(project('v', key)[t])
      weights = np.exp(np.array(logits) - max(logits))
      mixed.append(weights / weights.sum() @ np.array(values))
    return np.concatenate(mixed) @ p['o'] + p.get('o_bias', 0)

  def ffw(self, p, x):
    x_normed = self.norm(p, 'norm', x)
    y = x_normed @ p['w1'] + p.get('w1_bias', 0)
    y = activation(self.c.activation, y)
    if self.c.decoder.gated:
      y = y * (x_normed @ p['w3'] + p.get('w3_bias', 0))
    return x + y @ p['w2'] + p.get('w2_bias', 0)

  def norm(self, p, name, x):
    if self.c.decoder.norm == 'layer':
      return layer_norm(x, **p[name], epsilon=self.c.norm_epsilon)
    return rms_norm(x, p[name]['scale'], self.c.norm_epsilon)

  def attend_all(self, p, queries, values, seen, kind):
    """Every query to the values of the places `seen`."""
    values = [values[j] for j in seen]
    return [
      self.attend(p['attention'], x, values, [i - j for j in seen], kind)
      for i, x in enumerate(queries)
    ]

  def read_before(self, p, h, segments):
    """Self-attention: every token to its document up to itself."""
    y, rows = self.norm(p, 'norm', h), []
    for i in range(len(h)):
      seen = [j for j in range(i + 1) if segments[j] == segments[i]]
      keys, distances = [y[j] for j in seen], [i - j for j in seen]
      of_self = p['attention']
      rows.append(self.attend(of_self, y[i], keys, distances, 'decoder'))
    return h + rows

  def encode(self, neighbor, mask, chunk, chunk_visible):
    """[R] tokens of one neighbor, H_u [M, D] -> [R, E]."""
    c, p = self.c, self.p['encoder']
    table = 'embedding' if c.share_embeddings else 'encoder_embedding'
    e = self.p[table][np.where(mask, neighbor, 0)]
    if c.query_conditioning:
      chunk = self.norm(p, 'conditioning_norm', chunk)
    for layer in range(1, c.encoder_num_layers + 1):
      q = p[f'layer_{layer}_attn']
      y = self.norm(q, 'norm', e)
      seen = [j for j in range(len(e)) if mask[j]]
      e = e + self.attend_all(q, y, y, seen, 'encoder')
      if c.query_conditioning and layer == 1:
        q = p[f'layer_{layer}_ca']
        y = self.norm(q, 'norm', e)
        seen = [j for j in range(len(chunk)) if chunk_visible[j]]
        e = e + self.attend_all(q, y, chunk, seen, 'ca')
      e = self.ffw(p[f'layer_{layer}_ffw'], e)
    return self.norm(p, 'final_norm', e)

  def encode_all(self, h, neighbors, mask, segments):
    m = self.c.chunk_length
    encoded = []
    for u in range(min(len(h) // m, len(neighbors))):
      chunk = slice(u * m, u * m + m)
      owner = segments[u * m + m - 1]
      visible = (segments[chunk] == owner) & (owner > 0)
      encoded.append(
        [
          self.encode(n, keep, h[chunk], visible)
          for n, keep in zip(neighbors[u], mask[u], strict=True)
        ]
      )
    return encoded

  def cca(self, p, h, encoded, mask, segments):
    c = self.c
    m = c.chunk_length
    out = h.copy()
    y = self.norm(p, 'norm', h)
    for u, neighbors in enumerate(encoded):
      last = u * m + m - 1
      # Tokens h_{um+i-1}, i = 1..m, of the paper, from 0 here.
      for i in range(1, m + 1):
        t = last + i - 1
        if t >= len(h) or segments[t] != segments[last] or not segments[t]:
          continue
        keys, distances = [], []
        for e, keep in zip(neighbors, mask[u], strict=True):
          for position in range(1, c.neighbor_length + 1):
            if keep[position - 1]:
              keys.append(e[position - 1])
              distances.append(i - position + m - 1)
        of_cca = p['cca']['attention']
        out[t] += self.attend(of_cca, y[t], keys, distances, 'cca')
    return out

  def __call__(self, tokens, neighbors=None, mask=None, segments=None):
    """[L] tokens -> [L, V] logits."""
    c, p = self.c, self.p
    if segments is None:
      segments = np.ones(len(tokens), int)
    h = p['embedding'][tokens]
    if c.decoder.positions == 'absolute':
      rows = [
        sum(segments[j] == segments[i] for j in range(i))
        for i in range(len(tokens))
      ]
      h = h + p['positions']['table'][rows]
    encoded = None
    for layer in range(1, c.num_layers + 1):
      h = self.read_before(p[f'layer_{layer}_attn'], h, segments)
      if neighbors is not None and layer in c.cca_layers:
        if encoded is None:
          encoded = self.encode_all(h, neighbors, mask, segments)
        h = self.cca(p[f'layer_{layer}_cca'], h, encoded, mask, segments)
      h = self.ffw(p[f'layer_{layer}_ffw'], h)
    h = self.norm(p, 'final_norm', h)
    return h @ (p['embedding'] if c.tie_readout else p['readout']).T
