# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Agreement of an approximate search with an exact one."""

from jaxtyping import Float, Int
import numpy as np


def agreement_with_exact(
  found: Int[np.ndarray, 'b k'],
  exact: Int[np.ndarray, 'b k'],
  found_scores: Float[np.ndarray, 'b k'] | None = None,
  exact_scores: Float[np.ndarray, 'b k'] | None = None,
) -> float:
  """Return the mean share of the exact top k that another search finds.

  With scores, any row as good as the k-th counts, since the order of equal rows
  is arbitrary. The share is 1 where exact search finds nothing.

  Args:
    found: [b, k] ids of the tested search; -1 for none.
    exact: [b, k] ids of exact search; -1 for none.
    found_scores: [b, k] exact scores of `found`.
    exact_scores: [b, k] exact scores of `exact`, best first.

  Raises:
    ValueError: when the shapes differ.
  """
  if found.shape != exact.shape:
    raise ValueError(f'Shapes {found.shape} and {exact.shape} differ.')
  if not exact.size:
    return 1.0
  real = exact >= 0
  wanted = real.sum(1)
  if found_scores is None or exact_scores is None:
    same = exact[:, :, None] == found[:, None]
    hits = (same & real[..., None]).any(2).sum(1)
  else:
    last = np.maximum(wanted - 1, 0)[:, None]
    least = np.take_along_axis(np.asarray(exact_scores), last, axis=1)
    hits = ((found_scores >= least) & (found >= 0)).sum(1)
  shares = np.where(wanted, hits / np.maximum(wanted, 1), 1.0)
  return float(np.mean(shares))
