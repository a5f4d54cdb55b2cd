# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The span reader: coverage, short rows, memory, where it starts; `reader_oracle_test` has its scores."""

import dataclasses
import functools

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from realm_jax.nn import open_qa
from tests.realm_jax.data import tiny_qa
from tests.realm_jax.nn import tiny

CONFIG = tiny_qa.config()


@functools.cache
def _params():
  return tiny_qa.params(CONFIG)


def _rows():
  batch = tiny_qa.batch()
  names = ('ids', 'mask', 'types', 'block_mask')
  return [jnp.asarray(batch[f'reader_{x}'][:, 0]) for x in names]


@functools.partial(jax.jit, static_argnames=('config', 'train'))
def _read(*rows, config=CONFIG, train=False, seed=0):
  return open_qa.OpenQa(config).apply(
    {'params': _params()},
    *rows,
    train=train,
    rngs={'dropout': jax.random.key(seed)},
    method='read',
  )


def test_spans_gain_the_share_of_the_question_that_their_row_holds():
  """[CLS] 5 6 5 8 [SEP] with title and body, a row without question, and padding."""
  question = [1, 5, 6, 5, 8, 2]
  rows = [[*question, *x, 2] for x in ([8, 2, 6, 5], [5, 2, 9, 5], [9, 2, 9])]
  rows += [[1, 2, 5, 2, 5, 2], [0] * 6]
  ids = np.zeros((5, 12), np.int32)
  for row, tokens in zip(ids, rows, strict=True):
    row[: len(tokens)] = tokens
  types = np.asarray([[0] * 6 + [1] * 6] * 3 + [[0] * 2 + [1] * 10] * 2)
  mask = ids > 0
  given = [jnp.asarray(x) for x in (ids, mask, types, mask | ~mask)]
  expected = [1, 1 / 3, 0, 0, 0]
  np.testing.assert_allclose(open_qa.coverage(*given[:3]), expected)
  given[1] = given[1].at[0, 8].set(False)  # of 5, 6 and 8 the only 6
  found = np.asarray(open_qa.coverage(*given[:3]))
  np.testing.assert_allclose(found[0], 2 / 3)
  config = dataclasses.replace(CONFIG, coverage_weight=3.0)
  scores = [np.asarray(_read(*given, config=x)) for x in (config, CONFIG)]
  gained = (scores[0] - scores[1])[:, 0]
  expected = np.broadcast_to(3 * found[:, None], gained.shape)
  np.testing.assert_allclose(gained, expected, atol=1e-5)


def test_a_row_shorter_than_the_widest_span():
  rows = [x[:, :2] for x in _rows()]
  rows[-1] = jnp.ones_like(rows[-1])
  found = _read(*rows)
  assert found.shape == (tiny_qa.B, tiny_qa.W, 2)
  expected = [[True, True], [True, False], [False, False]]
  np.testing.assert_array_equal(found[0] > -9e3, expected)


def _init(**kwargs):
  config = kwargs.pop('config', CONFIG)
  return nn.unbox(open_qa.init_params(jax.random.key(0), config, **kwargs))


def _equal(found, expected):
  jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_starts_from_a_realm():
  realm = tiny.params(CONFIG.realm, seed=3)
  found, random = _init(embedder=realm, encoder=realm), _init()
  _equal(found['embedder'], realm['embedder'])
  _equal(found['reader']['bert'], realm['encoder']['bert'])
  _equal(
    found['reader']['span_projection'], random['reader']['span_projection']
  )
  assert jax.tree.structure(found) == jax.tree.structure(random)


def test_starts_from_another_answerer():
  trained = tiny_qa.params(CONFIG, seed=4)
  _equal(_init(encoder=trained), trained)
  realm = tiny.params(CONFIG.realm, seed=3)
  found = _init(encoder=trained, embedder=realm)
  _equal(found['reader'], trained['reader'])
  _equal(found['embedder'], realm['embedder'])
