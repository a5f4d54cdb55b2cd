# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The weight of words in hybrid retrieval: every weight fused, measured and shown."""

from collections.abc import Sequence
import dataclasses
from typing import Any

import numpy as np

from experiments.engine import reports
from retrieval.questions import ranking
from retrieval.search import fuse

FILE = 'tune_hybrid.json'
RANKS = 'ranks'  # the row of `fuse.by_ranks`
WEIGHTS = tuple(i / 10 for i in range(11))

# weight or RANKS -> measure -> value of each item
Values = dict[str, dict[str, np.ndarray]]


def fused(
  lists: Sequence[fuse.Found], weights: Sequence[float], k: int
) -> dict[str, fuse.Found]:
  """Fuse lists of vectors and of words by ranks, and by each weight of the words."""
  found = {RANKS: fuse.by_ranks([ids for ids, _ in lists], k)}
  for weight in sorted({*weights}):
    pair = 1 - weight, weight
    found[f'{weight:g}'] = fuse.by_scores(lists, pair, k)
  return found


def choose(sets: Sequence[Values], name: str) -> tuple[str, dict[str, float]]:
  """Return the best weight, and the mean of a measure over sets by weight.

  The best is that of the highest mean; the smallest of equal ones.
  """
  means = {
    weight: float(np.mean([values[weight][name].mean() for values in sets]))
    for weight in sets[0]
  }
  weights = [weight for weight in means if weight != RANKS]
  return max(weights, key=lambda x: (means[x], -float(x))), means


def show(values: Values, title: str) -> dict[str, Any]:
  """Print a row of each weight in percent; return it as JSON values."""
  record = {
    weight: {
      name: dataclasses.asdict(x)
      for name, x in ranking.intervals(found).items()
    }
    for weight, found in values.items()
  }
  names = list(record[RANKS])
  reports.print_table(
    ['words', *names],
    [[w, *(reports.share(x[n]) for n in names)] for w, x in record.items()],
    title,
  )
  return record
