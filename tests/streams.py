# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Batches of data sets: taken, compared, and taken again from a saved position."""

import numpy as np


def take(dataset, count=None):
  """The first batches, or all."""
  iterator = iter(dataset)
  found = [next(iterator) for _ in range(count)] if count else [*iterator]
  _close(iterator)
  return found


def _close(iterator):
  if hasattr(iterator, 'close'):
    iterator.close()


def assert_same(found, expected):
  """All arrays of two batches."""
  assert found.keys() == expected.keys()
  for name, values in found.items():
    np.testing.assert_array_equal(values, expected[name], name)


def check_position(make, after=5, count=4):
  """A stream that is opened at a saved position goes on with what comes next."""
  whole, again = iter(make()), iter(make())
  for _ in range(after):
    next(whole)
  again.set_state(whole.get_state())
  for _ in range(count):
    assert_same(next(again), next(whole))
  _close(whole)
  _close(again)
