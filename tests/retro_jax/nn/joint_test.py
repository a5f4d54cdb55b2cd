# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A decoder that reads by its own self-attention equals an oracle, and RETRO's rules."""

import dataclasses

from flax import linen as nn
import jax
import numpy as np
import pytest

from retro_jax.nn import models
from tests.retro_jax.nn import reference, step_test, tiny

QWEN = tiny.LLAMA | {'head_norms': True, 'projection_biases': True}


def joint(decoder=None, **overrides):
  given = {'joint': True, 'joint_rank': 3, 'begin_id': 2, 'num_layers': 2}
  return tiny.config(
    **given | {'cca_layers': (1, 2)} | (decoder or tiny.LLAMA) | overrides
  )


def _oracle(c, p, tokens, neighbors, mask):
  """Logits of one row, token by token and head by head."""
  m, r, k = c.chunk_length, c.neighbor_length, c.head_dim
  share = c.num_heads // c.decoder.num_kv_heads
  slow = reference.Reference(c, p)

  def norm(own, x):
    return reference.rms_norm(x, own['scale'], c.norm_epsilon)

  def turn(x, position):
    return reference.turn(x, position, c.decoder.rotary_base)

  def stream(ids, reader, at):
    """Run ids through the decoder; tokens read keys that `reader` names."""
    states, kept = [p['embedding'][i] for i in ids], []
    for n in range(1, c.num_layers + 1):
      own, new = p[f'layer_{n}_attn'], p[f'layer_{n}_reading']
      matrices, rows = own['attention'], []
      for t, x in enumerate(states):
        h, reads = norm(own['norm'], x), bool(reader(n, t))
        rows.append(
          [
            h @ matrices[name]
            + reads * (h @ new[f'{name}_in'] @ new[f'{name}_out'])
            for name in 'qkv'
          ]
        )
      kept.append(rows)
      for t in range(len(states)):
        read, mixed = reader(n, t), []
        for head in range(c.num_heads):
          part = slice(head * k, (head + 1) * k)
          shared = slice(head // share * k, (head // share + 1) * k)
          q = turn(rows[t][0][part], at + t)
          seen = [
            (turn(rows[s][1][shared], at + s), rows[s][2][shared], 0.0)
            for s in range(t + 1)
            if ids[s] >= 0
          ] + [
            (turn(key[shared], place), value[shared], new['b'][head])
            for place, key, value in read
          ]
          logits = np.array([q @ key / k**0.5 + b for key, _, b in seen])
          weights = np.exp(logits - logits.max())
          values = np.array([value for _, value, _ in seen])
          mixed.append(weights @ values / weights.sum())
        mixed = np.concatenate(mixed)
        out = mixed @ matrices['o']
        if read:
          out = out + mixed @ new['o_in'] @ new['o_out']
        states[t] = states[t] + out
      states = [slow.ffw(p[f'layer_{n}_ffw'], x) for x in states]
    return states, kept

  found = {}
  for u, n in np.ndindex(neighbors.shape[:2]):
    # The masks of the test hide ends alone, which nothing before sees.
    ids = [c.begin_id, *neighbors[u, n]]
    found[u, n] = stream(ids, lambda *_: [], 0)[1]

  def reader(layer, t):
    u = (t + 1) // m - 1
    return [
      (j + 1 - r, *found[u, n][layer - 1][j + 1][1:])
      for n in range(neighbors.shape[1] if u >= 0 else 0)
      for j in np.flatnonzero(mask[u, n])
    ]

  states, _ = stream(tokens, reader, 0)
  final = [norm(p['final_norm'], x) for x in states]
  return np.array(final) @ p['embedding'].T


def test_it_equals_an_oracle():
  c = joint(dtype='float64', param_dtype='float64')
  with jax.enable_x64(True):
    p = tiny.params(c)
    tokens, neighbors, _ = tiny.inputs(c, batch=1, length=10, chunks=2)
    mask = np.arange(7) < np.array([[7, 3], [0, 5]])[None, ..., None]
    found = tiny.apply(c, p, tokens, neighbors, mask)
  expected = _oracle(c, p, tokens[0], neighbors[0], mask[0])
  np.testing.assert_allclose(found[0], expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize('decoder', [tiny.LLAMA, tiny.GPT2, QWEN])
def test_off_is_the_decoder_bit_for_bit(decoder):
  c = joint(decoder)
  p = tiny.params(c)
  tokens, neighbors, mask = tiny.inputs(c, length=12)
  alone = dataclasses.replace(c, joint=False, cca_layers=())
  off = tiny.apply(c, p, tokens)
  np.testing.assert_array_equal(off, tiny.apply(alone, p, tokens))
  on = tiny.apply(c, p, tokens, neighbors, mask)
  np.testing.assert_allclose(on[:, :3], off[:, :3], atol=2e-5)
  assert np.abs(on - off)[:, 3:].max(-1).min() > 1e-3
  missing = tiny.apply(c, p, tokens, neighbors, np.zeros_like(mask))
  np.testing.assert_allclose(missing, off, atol=2e-5)


def test_causal_by_gradients():
  """Each token has an embedding of its own, so that gradients are by position."""
  c = joint(vocab_size=60, tie_readout=False, begin_id=59)
  p, length = tiny.params(c), 14
  tokens = np.arange(length, dtype=np.int32)[None]
  neighbors = np.arange(14, 14 + 42, dtype=np.int32).reshape(1, 3, 2, 7)

  def probe(table):
    found = tiny.apply(c, p | {'embedding': table}, tokens, neighbors)
    return found[0] @ np.ones(c.vocab_size, np.float32)

  by = np.abs(jax.jit(jax.jacrev(probe))(p['embedding'])).max(-1)
  np.testing.assert_array_equal(by[:, :14] > 0, np.tri(length, dtype=bool))
  of_chunk = by[:, 14:56].reshape(length, 3, -1) > 0
  for t, u in np.ndindex(length, 3):
    assert (of_chunk[t, u] == (t >= 4 * u + 3)).all()


def test_documents_of_a_row_are_read_alone():
  c = joint()
  p = tiny.params(c)
  tokens, neighbors, mask = tiny.inputs(c, batch=1, length=12)
  mask[:] = True
  segments = np.array([[1] * 6 + [0] * 2 + [2] * 4], np.int32)
  found = tiny.apply(c, p, tokens, neighbors, mask, segment_ids=segments)
  first = tiny.apply(c, p, tokens[:, :6], neighbors[:, :1], mask[:, :1])
  second = tiny.apply(c, p, tokens[:, 8:], neighbors[:, 2:], mask[:, 2:])
  np.testing.assert_allclose(found[:, :6], first, atol=2e-5)
  np.testing.assert_allclose(found[:, 8:], second, atol=2e-5)


def test_entries_are_read_by_the_groups_that_name_them():
  c = joint()
  p = tiny.params(c)
  tokens, neighbors, mask = tiny.inputs(c, length=12)
  expected = tiny.apply(
    c, p, tokens, neighbors[:, [1, 1, 0]], mask[:, [1, 1, 0]]
  )
  entries = np.array([[-1, 1, 1, 0]] * 2, np.int32)
  found = tiny.apply(c, p, tokens, neighbors, mask, entries=entries)
  np.testing.assert_allclose(found, expected, atol=2e-5)
  # The rule of chunks where the first token of a document ends one.
  segments = np.array([[0] * 3 + [1] * 9] * 2, np.int32)
  late = tiny.apply(c, p, tokens, neighbors, mask, segment_ids=segments)
  entries = np.array([[-1, 0, 1, 2]] * 2, np.int32)
  named = tiny.apply(
    c, p, tokens, neighbors, mask, segment_ids=segments, entries=entries
  )
  np.testing.assert_allclose(late[:, 3:], named[:, 3:], atol=2e-5)
  # A prompt of less than a chunk, padded on the left, reads; its first token does not.
  segments = np.array([[0, 1, 1, 1]] * 2, np.int32)
  one = tokens[:, :4], neighbors[:, :1], np.ones_like(mask[:, :1])
  on, off = (
    tiny.apply(c, p, *args, segment_ids=segments, **kwargs)
    for args, kwargs in (
      (one, {'entries': np.zeros((2, 2), np.int32)}),
      (one[:1], {}),
    )
  )
  np.testing.assert_allclose(on[:, :2], off[:, :2], atol=2e-5)
  assert np.abs(on - off)[:, 2:].max(-1).min() > 1e-3


def test_rows_share_neighbors():
  c = joint()
  p = tiny.params(c)
  tokens, neighbors, mask = tiny.inputs(c, batch=6, length=12)
  neighbors, mask = neighbors[:2], mask[:2]
  entries = np.random.default_rng(0).integers(-1, 3, (6, 4), np.int32)
  found = tiny.apply(c, p, tokens, neighbors, mask, entries=entries)
  each = np.repeat(neighbors, 3, axis=0), np.repeat(mask, 3, axis=0)
  expected = tiny.apply(c, p, tokens, *each, entries=entries)
  np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.parametrize('decoder', [tiny.LLAMA, tiny.GPT2, QWEN])
@pytest.mark.parametrize('padded', [False, True])
def test_steps_equal_the_whole_model(decoder, padded):
  """In float64, from different positions, across chunks, and padding on the left."""
  c = joint(decoder, dtype='float64', param_dtype='float64')
  segments = step_test.documents() if padded else None
  with jax.enable_x64(True):
    step_test.check_steps(c, np.array([3, 6, 4, 5]), segments, 1e-10)


@pytest.mark.parametrize(
  'fields, named',
  [
    ({'cca_layers': (2,)}, 'cca_layers'),
    ({'positions': 'relative'}, 'positions'),
    ({'layers': 'scanned'}, 'layers'),
    ({'joint_rank': 0}, 'joint_rank'),
  ],
)
def test_what_cannot_read_is_refused(fields, named):
  with pytest.raises(ValueError, match=named):
    joint(**fields)


def test_it_starts_with_a_bias_and_without_changes():
  c = joint()
  tokens = tiny.inputs(c, length=12)[0]
  init = jax.jit(models.of(c).init)
  found = nn.unbox(init(jax.random.key(0), tokens))['params']
  reading = found['layer_1_reading']
  assert (reading['b'] == 1).all() and reading['q_in'].any()
  assert not any(x.any() for k, x in reading.items() if k.endswith('_out'))
