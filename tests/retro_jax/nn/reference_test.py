# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The model equals the slow reference, in float64, whatever the config."""

import jax
import numpy as np
import pytest

from tests.retro_jax.nn import reference, tiny

CASES = {
  'ragged': ({'num_layers': 3, 'cca_layers': (2, 3)}, {}),
  'shorter than a chunk': ({}, {'length': 3}),
  'last token retrieves': ({}, {'length': 4, 'chunks': 1}),
  'fewer chunks given': ({}, {'length': 15, 'chunks': 2}),
  'short neighbors': ({'neighbor_length': 2}, {}),
  'shared table': ({'encoder_d_model': 12, 'share_embeddings': True}, {}),
  'odd width': ({'d_model': 11, 'encoder_d_model': 7}, {}),
  'shared keys, relative': ({'num_kv_heads': 1}, {}),
  'scanned': (
    {'layers': 'scanned', 'num_layers': 6, 'cca_layers': (2, 4, 6)},
    {},
  ),
}


SMALL = {'num_layers': 2, 'cca_layers': (2,)}


def _compare(overrides, sizes, segments=None):
  overrides = SMALL | overrides
  with jax.enable_x64(True):
    c = tiny.config(dtype='float64', param_dtype='float64', **overrides)
    p = tiny.params(c)
    tokens, neighbors, mask = tiny.inputs(c, **sizes)
    mask[0, -1] = False
    logits = jax.jit(
      lambda p: tiny.apply(c, p, tokens, neighbors, mask, segment_ids=segments)
    )(p)
  assert logits.dtype == np.float64
  slow = reference.Reference(c, p)
  for i in range(len(tokens)):
    expected = slow(
      tokens[i],
      neighbors[i],
      mask[i],
      None if segments is None else segments[i],
    )
    np.testing.assert_allclose(logits[i], expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize('case', CASES)
def test_equals_reference(case):
  overrides, sizes = CASES[case]
  _compare(overrides, {'batch': 1} | sizes)


# Every choice and size, to be drawn from.
CHOICES = {
  'd_model': (11, 12),
  'd_ff': (9, 20),
  'num_heads': (1, 2, 3),
  'head_dim': (3, 5),
  'num_layers': (1, 2),
  'chunk_length': (1, 3, 4),
  'neighbor_length': (2, 7),
  'encoder_d_model': (7, 8),
  'encoder_num_heads': (1, 3),
  'encoder_head_dim': (2, 4),
  'encoder_num_layers': (1, 2),
  'query_conditioning': (True, False),
  'cca_positions': (True, False),
  'tie_readout': (True, False),
  'activation': ('gelu_tanh', 'gelu', 'relu'),
  'norm_epsilon': (1e-6, 1e-3),
  'projection_biases': (True, False),
  'ff_biases': (True, False),
  'scale_logits': (True, False),
  'position_base': (100.0, 10000.0),
  'remat': ('none', 'full', 'attention'),
  'layers': ('scanned', 'unrolled'),
}


@pytest.mark.parametrize(
  'seed',
  [s if s < 4 else pytest.param(s, marks=pytest.mark.slow) for s in range(24)],
)
def test_random_configs_equal_reference(seed):
  rng = np.random.default_rng(seed)
  c = {name: rng.choice(values).item() for name, values in CHOICES.items()}

  def some(count):
    return tuple(i for i in range(1, count + 1) if rng.random() < 0.5) or (1,)

  c['cca_layers'] = some(c['num_layers'])
  length = int(rng.integers(1, 12))
  sizes = {
    'length': length,
    'chunks': int(rng.integers(1, -(-length // c['chunk_length']) + 1)),
    'neighbors': int(rng.integers(1, 4)),
  }
  _compare(c, {'batch': 1} | sizes)


@pytest.mark.parametrize(
  'rows',
  [
    # Three documents, the first and last padded on the right.
    [[1, 1, 1, 0, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3], [5] * 8 + [7] * 4 + [0] * 2],
    # Padding on the left, as in question answering, and a row of padding.
    [[0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1], [0] * 14],
  ],
)
def test_segments_equal_reference(rows):
  _compare({}, {}, np.array(rows, np.int32))


@pytest.mark.parametrize('fields', [tiny.LLAMA, tiny.GPT2])
def test_positions_count_from_a_document_s_first_token(fields):
  rows = [[1] * 4 + [2] * 8 + [3, 3], [0, 0] + [1] * 12]
  _compare(fields, {}, np.array(rows, np.int32))


def test_blocks_of_queries_equal_reference():
  """Longer than one block of causal attention, with two documents."""
  small = {'num_layers': 1, 'cca_layers': (1,), 'encoder_num_layers': 1}
  segments = np.repeat([[1, 2]], [72, 62], axis=1)
  sizes = {'batch': 1, 'length': 134, 'chunks': 1, 'neighbors': 1}
  _compare(small, sizes, segments)
