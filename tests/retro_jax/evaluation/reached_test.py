# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Bytes are those of all that functions reach, each buffer once."""

import functools
import types

import jax
import numpy as np

from retro_jax.evaluation import reached

SHELF = np.zeros(1000)
MODULE = types.ModuleType('other')
MODULE.array = np.zeros(5000)


def _named():
  def inner():
    return SHELF[:10]

  return inner, MODULE


def test_each_way_to_an_array_counts():
  one, view = np.zeros(100), np.zeros((40, 10))[:3]
  text, table = 'x' * (2 << 20), dict.fromkeys(range(1 << 16))

  class Model:
    def __init__(self):
      self.weights = view, SHELF

    def score(self, x=one):
      return x

  for functions, size in (
    ([lambda: (one, [view])], 800 + 3200),
    ([functools.partial(print, {'a': view}, 'small')], 3200),
    ([_named], 8000),
    ([Model().score, Model().score], 800 + 3200 + 8000),
    ([jax.jit(lambda: one), jax.numpy.zeros(30)], 800 + 120),
    ([lambda: text], text.__sizeof__()),
    ([lambda: table], table.__sizeof__()),
  ):
    assert 0 <= reached.num_bytes(*functions) - size < 64, size


def test_files_of_folders_count_once(tmp_path):
  (tmp_path / 'a/b').mkdir(parents=True)
  for i, name in enumerate(('a/x', 'a/b/y', 'z')):
    (tmp_path / name).write_bytes(bytes(10**i))
  paths = [tmp_path / x for x in ('a', 'a/b', 'z', 'no')]
  assert reached.files_bytes(*paths) == 111
