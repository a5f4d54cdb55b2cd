# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A RETRO of one chunk is a Fusion-in-Decoder, and where its parameters start."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retro_jax.nn import fid, initial
from tests.retro_jax.nn import reference, tiny

M, R, LENGTH = 4, 5, 4  # LENGTH tokens of BOS and answer are read


class Fid(reference.Reference):
  """Encoder and decoder in numpy: no chunks, and no padding."""

  def __call__(self, tokens, passages):
    """[L] tokens of the decoder, passages of tokens [T] -> [L, V] logits."""
    c, p = self.c, self.p
    encoded = [
      (j, e)
      for passage in passages
      for j, e in enumerate(
        self.encode(passage, np.ones(len(passage), bool), None, None)
      )
    ]
    h = p['embedding'][tokens]
    for layer in range(1, c.num_layers + 1):
      h = self.read_before(p[f'layer_{layer}_attn'], h, np.ones(len(h)))
      if layer in c.cca_layers:
        q = p[f'layer_{layer}_cca']
        y = self.norm(q, 'norm', h)
        h = h + [
          self.attend(
            q['cca']['attention'],
            y[i],
            [e for _, e in encoded],
            # As if a passage began where a chunk that ends with BOS begins.
            [i + c.chunk_length - 1 - j for j, _ in encoded],
            'cca',
          )
          for i in range(len(h))
        ]
      h = self.ffw(p[f'layer_{layer}_ffw'], h)
    return self.norm(p, 'final_norm', h) @ p['embedding'].T


def _config(**overrides):
  c = tiny.config(num_layers=2, cca_layers=(2,), **overrides)
  changed = fid.fields(c.num_layers, M, R)
  return dataclasses.replace(c, **changed)


def _inputs(c, lengths=(5, 3, 4), seed=0):
  rng = np.random.default_rng(seed)
  tokens = rng.permutation(c.vocab_size)[:LENGTH].astype(np.int32)
  passages = [rng.integers(0, c.vocab_size, n, np.int32) for n in lengths]
  return tokens, passages


def _row(tokens, passages):
  """Arguments of Retro: padding before BOS, passages of the first chunk."""
  padded = np.concatenate([np.zeros(M - 1, np.int32), tokens])
  segments = (np.arange(len(padded)) >= M - 1).astype(np.int32)
  found = np.zeros((1, len(passages), R), np.int32)
  mask = np.zeros(found.shape, bool)
  for n, passage in enumerate(passages):
    found[0, n, : len(passage)], mask[0, n, : len(passage)] = passage, True
  return (padded[None], found[None], mask[None]), segments[None]


def _logits(c, p, tokens, passages):
  arrays, segments = _row(tokens, passages)
  return tiny.apply(c, p, *arrays, segment_ids=segments)[0, M - 1 :]


@pytest.mark.parametrize(
  'overrides',
  [{}, {'cca_positions': False}],
  ids=['positions', 'no positions'],
)
def test_equals_the_slow_reference(overrides):
  with jax.enable_x64(True):
    c = _config(dtype='float64', param_dtype='float64', **overrides)
    p = tiny.params(c)
    tokens, passages = _inputs(c)
    found = _logits(c, p, tokens, passages)
  expected = Fid(c, p)(tokens, passages)
  np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


def _flat(params):
  return jax.tree_util.tree_leaves_with_path(params)


@pytest.mark.parametrize('baseline', [False, True])
def test_what_a_run_has_is_loaded(baseline):
  source = tiny.config(
    num_layers=2, cca_layers=() if baseline else (2,), encoder_num_layers=1
  )
  changed = fid.fields(source.num_layers, M, R)
  c = dataclasses.replace(source, **changed)
  trained = tiny.params(source)
  params, new, left = initial.extend(jax.random.key(0), c, trained)
  if baseline:
    encoder = [
      f'encoder/{x}' for x in ('final_norm', 'layer_1_attn', 'layer_1_ffw')
    ]
    ccas = ['layer_1_cca', 'layer_2_cca']
    assert (new, left) == ([*encoder, 'encoder_embedding', *ccas], [])
  else:
    assert new == ['layer_1_cca']
    assert left == ['encoder/conditioning_norm', 'encoder/layer_1_ca']
  shapes = jax.tree.map(jnp.shape, tiny.params(c))
  assert jax.tree.map(jnp.shape, params) == shapes
  before = dict(_flat(trained))
  for path, x in _flat(params):
    names = [k.key for k in path]
    if '/'.join(names[: 1 + (names[0] == 'encoder')]) not in new:
      np.testing.assert_array_equal(x, before[path])
