# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A baseline with n-grams equals an oracle, looks back alone, and forgets documents."""

import functools

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from retro_jax.nn import config as config_lib, models, ngram_memory, stack
from tests.retro_jax.nn import reference, step_test, tiny


def config(decoder=None, **overrides):
  sizes = {'layers': (1, 3), 'heads': 2, 'rows': 16, 'width': 5}
  ngrams = config_lib.Ngrams(**sizes | overrides.pop('ngrams', {}))
  return tiny.config(cca_layers=(), ngrams=ngrams, **decoder or {}, **overrides)


def _finalize(x):
  """MurmurHash3's, of one number."""
  for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
    x = (x ^ (x >> shift)) * factor % 2**32
  return x


def _rows(c, tokens, t):
  """The row of each table for the n-grams that end at token t of a document."""
  g, rows = c.ngrams, []
  for table in range(2 * g.heads):
    order = 2 + table // g.heads
    draws = [
      _finalize((4 * table + i + 1) * 0x9E3779B9 % 2**32) for i in range(4)
    ]
    total = draws[3] + sum(
      draws[i] * (int(tokens[t - i]) + 1) for i in range(order) if i <= t
    )
    rows.append(table * g.rows + total % 2**32 * g.rows // 2**32)
  return rows


def _recall(c, p, layer, x, rows):
  own = p[f'layer_{layer}_recall']
  e = np.concatenate([p[f'layer_{layer}_ngrams'][i] for i in rows])
  q, k = (
    reference.rms_norm(y, own[name]['scale'], c.norm_epsilon)
    for y, name in ((x, 'norm'), (e @ own['k'], 'key_norm'))
  )
  return x + e @ own['v'] / (1 + np.exp(-(q @ k) / len(x) ** 0.5))


def _oracle(c, p, tokens):
  """Logits of one document, token by token."""
  slow, h = reference.Reference(c, p), p['embedding'][tokens]
  for n in range(1, c.num_layers + 1):
    if n in c.ngrams.layers:
      of_text = enumerate(h)
      h = [_recall(c, p, n, x, _rows(c, tokens, t)) for t, x in of_text]
    own = p[f'layer_{n}_attn'], np.array(h), np.ones(len(h))
    h = [slow.ffw(p[f'layer_{n}_ffw'], x) for x in slow.read_before(*own)]
  return np.array([slow.norm(p, 'final_norm', x) for x in h]) @ (
    p['embedding'].T
  )


@pytest.mark.parametrize('decoder', [{}, tiny.LLAMA])
def test_it_equals_an_oracle_in_packed_documents(decoder):
  c = config(decoder, dtype='float64', param_dtype='float64')
  segments = np.array([[1] * 5 + [2] * 7, [0] * 3 + [1] * 9], np.int32)
  with jax.enable_x64(True):
    p = tiny.params(c)
    tokens = tiny.inputs(c, length=12)[0]
    logits = tiny.apply(c, p, tokens, segment_ids=segments)
    alone = tiny.apply(c, p, tokens)
  for row, start, stop in ((0, 0, 5), (0, 5, 12), (1, 3, 12)):
    document = slice(start, stop)
    np.testing.assert_allclose(
      logits[row, document], _oracle(c, p, tokens[row, document]), atol=1e-10
    )
  np.testing.assert_allclose(alone[0], _oracle(c, p, tokens[0]), atol=1e-10)


def _looked_up(c, tokens):
  """Windows and rows of one document."""
  windows = ngram_memory.windows_of(jnp.asarray(tokens), None)
  rows = ngram_memory.look_up_rows(c.ngrams, windows)
  return np.asarray(windows)[0], np.asarray(rows)[0]


def test_hashes_spread_n_grams_over_rows():
  c = config(ngrams={'rows': 1024, 'heads': 3})
  tokens = np.random.default_rng(0).integers(0, 23, (1, 4096), np.int32)
  windows, rows = _looked_up(c, tokens)
  for table in range(6):
    own, order = rows[:, table] - 1024 * table, 2 + table // 3
    assert own.min() >= 0 and own.max() < 1024
    distinct = len({*map(tuple, windows[:, :order])})
    expected = 1024 * (1 - np.exp(-distinct / 1024))
    assert len({*own}) > 0.9 * expected
  # Heads are independent: what meets in one is apart in another.
  assert len({*map(tuple, rows[:, :3])}) > 0.95 * 23**2
  assert len({*map(tuple, rows[:, 3:])}) > 0.95 * len({*map(tuple, rows)})


def test_causal_by_gradients():
  """Each token has an embedding of its own, so that gradients are by position."""
  c = config(vocab_size=14, tie_readout=False, ngrams={'rows': 2**12})
  p, tokens = tiny.params(c), np.arange(14, dtype=np.int32)[None]

  def probe(tables):
    logits = tiny.apply(c, p | tables, tokens)
    return logits[0] @ np.ones(c.vocab_size, np.float32)

  tables = {name: p[name] for name in ('embedding', 'layer_1_ngrams')}
  of = jax.jit(jax.jacrev(probe))(tables)
  seen = np.abs(of['embedding']).max(-1) > 0
  np.testing.assert_array_equal(seen, np.tri(14, dtype=bool))
  rows = np.array([_rows(c, tokens[0], t) for t in range(14)])
  seen = np.abs(of['layer_1_ngrams']).max(-1)[:, rows].max(-1) > 0
  np.testing.assert_array_equal(seen, np.tri(14, dtype=bool))
  untouched = np.delete(of['layer_1_ngrams'], rows.ravel(), axis=1)
  assert not np.abs(untouched).max()


@pytest.mark.parametrize(
  'decoder, padded',
  [({}, False), ({}, True), (tiny.LLAMA, True), (tiny.GPT2, True)],
)
def test_steps_equal_the_whole_model(decoder, padded):
  """In float64, from different positions, and padding on the left."""
  c = config(decoder, dtype='float64', param_dtype='float64')
  segments = step_test.documents() if padded else None
  with jax.enable_x64(True):
    step_test.check_steps(c, np.array([3, 6, 4, 5]), segments, 1e-10)


def test_parameters_carry_logical_axes_and_are_flat():
  c = config()
  init = functools.partial(models.of(c).init, jax.random.key(0))
  params = jax.eval_shape(init, np.zeros((1, 4), np.int32))['params']
  assert params['layer_3_ngrams'].names == ('ngrams', 'embed')
  assert params['layer_3_ngrams'].value.shape == (4 * 16, 5)
  assert params['layer_1_recall']['v'].names == (None, 'embed')
  assert 'layer_2_recall' not in params and not stack.is_scanned(c)
  boxed = jax.tree.leaves(
    params, is_leaf=lambda x: isinstance(x, nn.Partitioned)
  )
  assert all(isinstance(x, nn.Partitioned) for x in boxed)


@pytest.mark.parametrize(
  'fields, named',
  [
    ({'ngrams': {'rows': 12}}, 'rows'),
    ({'ngrams': {'layers': (4,)}}, 'ngrams.layers'),
    ({'ngrams': {'layers': (0,)}}, 'layers'),
    ({'ngrams': {'heads': 0}}, 'heads'),
    ({'layers': 'scanned'}, 'ngrams.layers'),
  ],
)
def test_configs_that_do_not_fit(fields, named):
  with pytest.raises(ValueError, match=named):
    config(**fields)


def test_a_retro_has_none():
  c = tiny.config(ngrams=config_lib.Ngrams(layers=(1,)))
  with pytest.raises(ValueError, match='ngrams.layers'):
    models.of(c)
