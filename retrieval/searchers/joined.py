# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Search of several indices of consecutive rows as one.

Their scores must compare: of vectors of one embedder by one metric, or of one ColBERT.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from retrieval.searchers import base, subset as subset_lib


def spans(sizes: Sequence[int]) -> list[range]:
  """Return the rows of each of several indices among those of all."""
  ends = np.cumsum(sizes).tolist()
  return [*map(range, [0, *ends[:-1]], ends)]


class JoinedSearcher:
  """Indices whose rows follow each other.

  Attributes:
    parts: the indices, each with `search`, `unit` and perhaps what a
      `searchers.Searcher` has.
    spans: rows of each.
  """

  name = 'joined'

  def __init__(self, parts: Sequence[Any], sizes: Sequence[int]):
    self.parts, self.spans = parts, spans(sizes)
    self.num_vectors = sum(sizes)
    self.unit = parts[0].unit
    self.metric = getattr(parts[0], 'metric', '')
    self.dimension = getattr(parts[0], 'dimension', 0)

  def search(
    self, queries: np.ndarray, k: int, subset: subset_lib.Subset | None = None
  ) -> base.Hits:
    """Find the k best rows of each query; ties go to the lower id."""
    ids, scores = [], []
    for part, span in zip(self.parts, self.spans, strict=True):
      some = subset and subset.within(span)
      rows, values = part.search(queries, k, some)
      ids.append(np.where(rows < 0, -1, rows + span.start))
      scores.append(values)
    return base.best(*(np.concatenate(x, axis=1) for x in (ids, scores)), k)
