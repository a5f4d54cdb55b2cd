# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Targets that the maskers choose."""

from hypothesis import given, strategies as st
import numpy as np

from realm_jax.data import sources

LENGTHS = st.integers(1, 120)
SEEDS = st.integers(0, 2**32)


@given(LENGTHS, SEEDS)
def test_uniform_takes_fifteen_percent(length, seed):
  chosen = sources.mask_uniformly(length, np.random.default_rng(seed))
  assert len(chosen) == max(1, round(0.15 * length))
  assert (np.diff(chosen) > 0).all() and 0 <= chosen[0] <= chosen[-1] < length


@given(LENGTHS, SEEDS)
def test_spans_are_whole_words_within_the_budget(length, seed):
  rng = np.random.default_rng(seed)
  continues = rng.random(length) < 0.3
  continues[0] = False
  chosen = sources.mask_spans(length, rng, continues)
  assert (np.diff(chosen) > 0).all() and 0 <= chosen[0] <= chosen[-1] < length
  taken = np.isin(np.arange(length), chosen)
  # No word is cut: a continuation is masked exactly when what it continues is.
  assert (taken[1:] == taken[:-1])[continues[1:]].all()
  words = ~continues & taken
  assert words.sum() <= sources.budget(length) <= len(chosen)
