# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures of retrieval."""

from jaxtyping import Int
import numpy as np


def agreement_with_exact(
  found: Int[np.ndarray, 'b k'], exact: Int[np.ndarray, 'b k']
) -> float:
  """Share of the exact top k that an approximate search also finds.

  Args:
    found: [b, k] ids of the search under test; -1 for none.
    exact: [b, k] ids of exact search; -1 for none.

  Returns:
    Mean over queries, in [0, 1]; 1 where exact search finds nothing either.

  Raises:
    ValueError: when the shapes differ.
  """
  if found.shape != exact.shape:
    raise ValueError(f'Shapes {found.shape} and {exact.shape} differ.')
  hits = ((exact[:, :, None] == found[:, None]) & (exact >= 0)[..., None]).any(
    2
  )
  wanted = (exact >= 0).sum(1)
  return float(
    np.mean(np.where(wanted, hits.sum(1) / np.maximum(wanted, 1), 1))
  )


def recall_at_k(ids: Int[np.ndarray, 'b n'], relevant: list[set], k: int):
  """Share of queries with a relevant id among the first k.

  Args:
    ids: [b, n] retrieved ids, best first.
    relevant: [b] sets of the ids that count.
    k: how many to look at.

  Returns:
    A float in [0, 1].

  Raises:
    ValueError: when there are fewer than k columns or no queries.
  """
  if not len(ids) or k > ids.shape[1] or len(relevant) != len(ids):
    raise ValueError(
      f'recall@{k} of ids {ids.shape} and {len(relevant)} sets: expected as '
      'many sets as rows, at least one, and at least k columns.'
    )
  rows = zip(ids[:, :k].tolist(), relevant, strict=True)
  return float(np.mean([bool(wanted & set(row)) for row, wanted in rows]))
