# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The model one token at a time equals the whole model, and does less."""

import functools

import jax
import numpy as np
import pytest

from retro_jax.nn import models
from tests.retro_jax.nn import tiny


@functools.partial(jax.jit, static_argnames='c')
def _fill(c, p, *args, **kwargs):
  return models.of(c).apply({'params': p}, *args, **kwargs, mutable='cache')


@functools.partial(jax.jit, static_argnames='c')
def _step(c, p, cache, *args):
  step, variables = models.step_of(models.of(c)), {'params': p, **cache}
  return step.apply(variables, *args, mutable='cache')


@pytest.mark.parametrize(
  'overrides',
  [
    {},
    {'cca_layers': ()},
    {
      'cca_layers': (1,),
      'remat': 'full',
      'cca_positions': False,
      'projection_biases': True,
      'ff_biases': True,
      'tie_readout': False,
      'query_conditioning': False,
    },
    {'chunk_length': 1, 'scale_logits': False},
  ],
)
def test_steps_equal_the_whole_model(overrides):
  """Rows of different lengths; tokens after them are not what follows."""
  c = tiny.config(**{'num_layers': 2, 'cca_layers': (1, 2)} | overrides)
  check_steps(c, np.array([2, 7, 0, 11]))


@pytest.mark.parametrize('decoder', [{}, tiny.LLAMA, tiny.GPT2])
def test_steps_read_their_own_document_alone(decoder):
  """Padding on the left, of a chunk and more too, and a second document."""
  c = tiny.config(num_layers=2, cca_layers=(1, 2), **decoder)
  check_steps(c, np.array([3, 6, 4, 5]), documents())


def documents():
  segment_ids = np.ones((4, 12), np.int32)
  segment_ids[0, :3] = segment_ids[1, :5] = 0
  segment_ids[3, 4:] = 2
  return segment_ids


def check_steps(c, position, segment_ids=None, atol=1e-5):
  """From `position` on, one token at a time, to the end of 12 tokens."""
  p, m = tiny.params(c), c.chunk_length
  tokens, neighbors, mask = tiny.inputs(c, batch=4, length=12)
  mask[0, :2] = mask[2, 1, 0] = False
  if segment_ids is not None:
    mask[:] = True  # Where nothing is read, that must not be why.
  retrieved = (neighbors, mask) if c.cca_layers else ()
  documents = {} if segment_ids is None else {'segment_ids': segment_ids}
  expected = tiny.apply(c, p, tokens, *retrieved, **documents)
  begun = np.where(np.arange(12) <= position[:, None], tokens, 5)
  logits, cache = _fill(c, p, begun, *retrieved, last=position, **documents)
  assert logits.shape == (4, 1, c.vocab_size)
  every = np.arange(4)
  check = functools.partial(np.testing.assert_allclose, rtol=0, atol=atol)
  check(logits[:, 0], expected[every, position])
  for _ in range(11):
    complete = (position < 11) & ((position + 2) % m == 0)
    position = np.minimum(position + 1, 11)
    rows, chunks = np.flatnonzero(complete), (position + 1) // m - 1
    found = ()
    if c.cca_layers and len(rows):
      rows = np.resize(rows, 4)  # One compilation.
      found = (rows, *(x[rows, chunks[rows]] for x in retrieved))
    logits, cache = _step(
      c, p, cache, tokens[every, position], position, *found
    )
    check(logits, expected[every, position])


def test_a_step_computes_one_position():
  """Nothing is encoded within a chunk, and nothing read out but the last."""
  c = tiny.config(num_layers=2, cca_layers=(1, 2), vocab_size=61)
  p = tiny.params(c)
  args = tiny.inputs(c, length=12)
  last = np.array([4, 8])
  fill = jax.make_jaxpr(lambda p: _fill(c, p, *args, last=last))(p)
  whole = jax.make_jaxpr(lambda p: tiny.apply(c, p, *args))(p)
  assert '12,61]' in str(whole) and '12,61]' not in str(fill)
  _, cache = _fill(c, p, *args, last=last)
  del p['encoder'], p['encoder_embedding']
  step = jax.make_jaxpr(_step, static_argnums=0)(c, p, cache, last, last + 1)
  # No product with the matrices has 12 tokens: f32[2,12,d].
  assert 'f32[2,12,20]' in str(fill) and 'f32[2,1,20]' in str(step)
  assert 'f32[2,12,20]' not in str(step)
