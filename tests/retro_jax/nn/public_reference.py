# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Public decoders in numpy, from their files' own tensors and conventions.

Nothing is shared with the library: Llama's rotary positions turn neighboring pairs
here, as the order of rows in GGUF files has it.
"""

import numpy as np

LLAMA = {
  'd': 32,
  'heads': 4,
  'shared': 2,
  'head_dim': 8,
  'd_ff': 48,
  'layers': 2,
  'base': 300.0,
  'epsilon': 1e-5,
}
GPT2 = {'d': 16, 'heads': 2, 'layers': 2, 'positions': 24, 'epsilon': 1e-5}


def _draw(rng, *shape):
  return (rng.standard_normal(shape) * shape[-1] ** -0.5).astype(np.float32)


# Names in GGUF files and in Hugging Face's.
_NAMES = {
  'token_embd': 'model.embed_tokens',
  'output_norm': 'model.norm',
  'output': 'lm_head',
  'attn_q': 'self_attn.q_proj',
  'attn_k': 'self_attn.k_proj',
  'attn_v': 'self_attn.v_proj',
  'attn_output': 'self_attn.o_proj',
  'attn_norm': 'input_layernorm',
  'ffn_gate': 'mlp.gate_proj',
  'ffn_up': 'mlp.up_proj',
  'ffn_down': 'mlp.down_proj',
  'ffn_norm': 'post_attention_layernorm',
}


def _gguf_names():
  """Of a Llama's tensors, with those of Hugging Face."""
  for ours, theirs in _NAMES.items():
    layers = range(LLAMA['layers']) if '_' in ours else ()
    yield f'{ours}.weight', f'{theirs}.weight'
    for i in layers:
      yield f'blk.{i}.{ours}.weight', f'model.layers.{i}.{theirs}.weight'


def llama_tensors(vocab_size, tied=True):
  """As a GGUF file has them."""
  t = hugging_face_tensors(vocab_size, tied=tied)
  return {ours: t[theirs] for ours, theirs in _gguf_names() if theirs in t}


def llama(t, tokens):
  """[L] -> [L, V]."""

  def turn(x, angle):
    turned = turn_halves(np.concatenate([x[..., ::2], x[..., 1::2]], -1), angle)
    return np.stack(np.split(turned, 2, -1), -1).reshape(x.shape)

  renamed = {theirs: t[ours] for ours, theirs in _gguf_names() if ours in t}
  return hugging_face(renamed, tokens, turn)


def hugging_face_tensors(vocab_size, kind='llama', tied=True):
  """Of Hugging Face's Llama, Qwen2 or Qwen3: `kind`."""
  s, rng = LLAMA, np.random.default_rng(3)
  d, k, inner = s['d'], s['head_dim'], s['heads'] * s['head_dim']
  shared = s['shared'] * k
  tensors = {
    'model.embed_tokens.weight': 3 * _draw(rng, vocab_size, d),
    'model.norm.weight': 1 + _draw(rng, d),
  }
  if not tied:
    tensors['lm_head.weight'] = _draw(rng, vocab_size, d)
  for i in range(s['layers']):
    shapes = {
      'self_attn.q_proj.weight': (inner, d),
      'self_attn.k_proj.weight': (shared, d),
      'self_attn.v_proj.weight': (shared, d),
      'self_attn.o_proj.weight': (d, inner),
      'mlp.gate_proj.weight': (s['d_ff'], d),
      'mlp.up_proj.weight': (s['d_ff'], d),
      'mlp.down_proj.weight': (d, s['d_ff']),
    }
    scales = {'input_layernorm': d, 'post_attention_layernorm': d}
    if kind == 'qwen2':
      for x, size in (('q', inner), ('k', shared), ('v', shared)):
        shapes[f'self_attn.{x}_proj.bias'] = (size,)
    if kind == 'qwen3':
      scales |= {'self_attn.q_norm': k, 'self_attn.k_norm': k}
    for name, shape in shapes.items():
      tensors[f'model.layers.{i}.{name}'] = 2 * _draw(rng, *shape)
    for name, size in scales.items():
      tensors[f'model.layers.{i}.{name}.weight'] = 1 + _draw(rng, size)
  return tensors


def turn_halves(x, angle):
  """Pairs (a, a + K / 2) of [L, heads, K]."""
  a, b = np.split(x, 2, -1)
  sin, cos = np.sin(angle), np.cos(angle)
  return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def hugging_face(t, tokens, turn_by=turn_halves):
  """[L] -> [L, V]; what the tensors' names do not tell is as in LLAMA."""
  s = LLAMA
  length, k = len(tokens), s['head_dim']

  def rms(x, name):
    if f'{name}.weight' not in t:
      return x
    size = np.sqrt((x * x).mean(-1, keepdims=True) + s['epsilon'])
    return x / size * t[f'{name}.weight']

  def turn(x):
    steps = s['base'] ** (-2 * np.arange(k // 2) / k)
    return turn_by(x, np.arange(length)[:, None, None] * steps)

  x = t['model.embed_tokens.weight'].astype(np.float64)[tokens]
  for i in range(s['layers']):
    of = f'model.layers.{i}'

    def linear(name, x, of=of):
      y = x @ t[f'{of}.{name}.weight'].T
      return y + t.get(f'{of}.{name}.bias', 0)

    def heads(name, h, of=of, linear=linear):
      return linear(f'self_attn.{name}_proj', h).reshape(length, -1, k)

    h = rms(x, f'{of}.input_layernorm')
    q = turn(rms(heads('q', h), f'{of}.self_attn.q_norm'))
    keys = turn(rms(heads('k', h), f'{of}.self_attn.k_norm'))
    values, mixed = heads('v', h), []
    for head in range(s['heads']):
      shared = head * s['shared'] // s['heads']
      mixed.append(_attend(q[:, head], keys[:, shared], values[:, shared]))
    x = x + linear('self_attn.o_proj', np.concatenate(mixed, -1))
    h = rms(x, f'{of}.post_attention_layernorm')
    gate = linear('mlp.gate_proj', h)
    gate = gate / (1 + np.exp(-gate))
    x = x + linear('mlp.down_proj', gate * linear('mlp.up_proj', h))
  x = rms(x, 'model.norm')
  return x @ t.get('lm_head.weight', t['model.embed_tokens.weight']).T


def hugging_face_settings(kind='llama', **changed):
  """config.json of `hugging_face_tensors`."""
  s = LLAMA
  return {
    'model_type': kind,
    'hidden_size': s['d'],
    'intermediate_size': s['d_ff'],
    'num_attention_heads': s['heads'],
    'num_key_value_heads': s['shared'],
    'num_hidden_layers': s['layers'],
    'head_dim': s['head_dim'],
    'hidden_act': 'silu',
    'rms_norm_eps': s['epsilon'],
    'rope_theta': s['base'],
    'tie_word_embeddings': True,
  } | changed


def gpt2_tensors(vocab_size):
  s, rng = GPT2, np.random.default_rng(1)
  d = s['d']
  shapes = {'wte.weight': (vocab_size, d), 'wpe.weight': (s['positions'], d)}
  norms = ['ln_f']
  for i in range(s['layers']):
    for name, rows, columns in (
      ('attn.c_attn', d, 3 * d),
      ('attn.c_proj', d, d),
      ('mlp.c_fc', d, 4 * d),
      ('mlp.c_proj', 4 * d, d),
    ):
      shapes[f'h.{i}.{name}.weight'] = (rows, columns)
      shapes[f'h.{i}.{name}.bias'] = (columns,)
    norms += [f'h.{i}.ln_1', f'h.{i}.ln_2']
  tensors = {name: 3 * _draw(rng, *shape) for name, shape in shapes.items()}
  for name in norms:
    tensors[f'{name}.weight'] = 1 + _draw(rng, d)
    tensors[f'{name}.bias'] = _draw(rng, d)
  return tensors


def gpt2(t, tokens):
  """[L] -> [L, V]."""
  s = GPT2
  length, k = len(tokens), s['d'] // s['heads']

  def norm(x, name):
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + s['epsilon'])
    return x * t[f'{name}.weight'] + t[f'{name}.bias']

  def linear(x, name):
    return x @ t[f'{name}.weight'] + t[f'{name}.bias']

  x = t['wte.weight'].astype(np.float64)[tokens] + t['wpe.weight'][:length]
  for i in range(s['layers']):
    three = linear(norm(x, f'h.{i}.ln_1'), f'h.{i}.attn.c_attn')
    q, keys, values = three.reshape(length, 3, s['heads'], k).swapaxes(0, 1)
    mixed = [
      _attend(q[:, h], keys[:, h], values[:, h]) for h in range(s['heads'])
    ]
    x = x + linear(np.concatenate(mixed, -1), f'h.{i}.attn.c_proj')
    h = linear(norm(x, f'h.{i}.ln_2'), f'h.{i}.mlp.c_fc')
    inner = np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)
    x = x + linear(0.5 * h * (1 + np.tanh(inner)), f'h.{i}.mlp.c_proj')
  return norm(x, 'ln_f') @ t['wte.weight'].T


def _attend(q, keys, values):
  logits = q @ keys.T / np.sqrt(q.shape[-1])
  logits[np.triu_indices(len(q), 1)] = -np.inf
  weights = np.exp(logits - logits.max(-1, keepdims=True))
  return weights / weights.sum(-1, keepdims=True) @ values
