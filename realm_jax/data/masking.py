# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Choice of masked tokens: a salient span, random tokens, or random spans.

Guu et al. 2020, section 3.4 and Table 2.
"""

from typing import Literal

import numpy as np

Kind = Literal['salient', 'uniform', 'span']
MASK_RATE = 0.15  # Devlin et al. 2018, section 3.1
# Joshi et al. 2020 (SpanBERT), section 3.1: lengths are geometric, at most 10.
_SPAN_P = 0.2
_MAX_SPAN = 10


def budget(length: int, rate: float = MASK_RATE) -> int:
  """Number of tokens that the random maskers mask, at least one."""
  return max(1, round(rate * length))


def uniform(
  length: int,
  rng: np.random.Generator,
  rate: float = MASK_RATE,
  weights: np.ndarray | None = None,
) -> np.ndarray:
  """Choose single tokens (BERT) by `weights` [length]: sorted indices."""
  return np.sort(
    rng.choice(length, budget(length, rate), replace=False, p=weights)
  )


def spans(
  length: int, rng: np.random.Generator, continues: np.ndarray | None = None
) -> np.ndarray:
  """Choose contiguous spans of whole words (SpanBERT): sorted indices.

  The last word may exceed the budget. `continues` [length] bool marks tokens
  that continue the preceding word; None: each token is a word.
  """
  first = np.ones(length, bool) if continues is None else ~continues
  first[0] = True
  starts = np.flatnonzero(first)
  ends = np.append(starts[1:], length)
  chosen = np.zeros(length, bool)
  wanted = budget(length)
  while (left := wanted - int(chosen.sum())) > 0:
    words = min(int(rng.geometric(_SPAN_P)), _MAX_SPAN, left)
    word = int(rng.integers(len(starts)))
    last = min(word + words, len(starts)) - 1
    chosen[starts[word] : ends[last]] = True
  return np.flatnonzero(chosen)


def salient(candidates: np.ndarray, rng: np.random.Generator) -> np.ndarray:
  """Choose one salient span of [n, 2] (past-last) uniformly (section 3.4)."""
  start, limit = candidates[int(rng.integers(len(candidates)))].tolist()
  return np.arange(start, limit)
