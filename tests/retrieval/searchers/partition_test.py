# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from retrieval.searchers import partition


def _assigned(rows, centers, block_rows, wishes):
  blocks = [
    partition.order(rows[low : low + block_rows], centers, few=wishes)
    for low in range(0, len(rows), block_rows)
  ]
  more = lambda ids: partition.order(rows[ids], centers)  # noqa: E731
  return list(partition.assign(blocks, len(rows), len(centers), more))


def test_centroids_are_those_of_clusters_and_the_same_each_time():
  rng = np.random.default_rng(0)
  means = 10 * rng.standard_normal((4, 8)).astype(np.float32)
  rows = means[rng.integers(0, 4, 2000)]
  rows += 0.01 * rng.standard_normal(rows.shape, np.float32)
  found = partition.centroids(rows, 4)
  np.testing.assert_array_equal(found, partition.centroids(rows, 4))
  distances = np.linalg.norm(found[:, None] - means, axis=2).min(axis=1)
  assert distances.max() < 0.1


@pytest.mark.parametrize('wishes', [1, 2, 3])
def test_parts_are_bounded_and_rows_take_the_nearest_with_room(wishes):
  """Nine tenths of the rows lie at one centroid."""
  rng = np.random.default_rng(1)
  centers = np.float32([[0, 0], [4, 0], [9, 0]])
  at = np.where(rng.random(900) < 0.9, 0, rng.integers(0, 3, 900))
  rows = centers[at] + 0.1 * rng.standard_normal((900, 2)).astype(np.float32)
  for block_rows in (900, 47):
    nearest = np.argsort(((rows[:, None] - centers) ** 2).sum(2), axis=1)
    wanted, taken = np.full(900, -1), np.zeros(3, int)
    for low in range(0, 900, block_rows):
      block = np.arange(low, min(low + block_rows, 900))
      for rank in range(3):
        for row in block[wanted[block] < 0]:
          part = nearest[row, rank]
          if taken[part] < 375:  # 1.25 times 300
            wanted[row] = part
            taken[part] += 1
    assert taken.sum() == 900 and taken.max() == 375
    parts = _assigned(rows, centers, block_rows, wishes)
    assert [len(x) for x in parts[:-1]] == [block_rows] * (len(parts) - 1)
    np.testing.assert_array_equal(np.concatenate(parts), wanted)


@pytest.mark.parametrize('few', [1, 3, 8, 40])
def test_few_of_an_order_are_its_first(few):
  """Equal centroids tie; the lower one comes first."""
  rng = np.random.default_rng(4)
  centers = np.repeat(rng.standard_normal((8, 3)), 5, axis=0)
  rows = rng.standard_normal((300, 3)).astype(np.float32)
  found = partition.order(rows, centers, few=few)
  wanted = partition.order(rows, centers)
  np.testing.assert_array_equal(found, wanted[:, :few])


@pytest.mark.parametrize('metric', ['dot_product', 'squared_l2'])
def test_order_is_exact_in_whatever_order_products_are_added(metric):
  """Threads split the sums; rows between two centroids show the difference."""
  rng = np.random.default_rng(3)
  centers = rng.standard_normal((64, 384)).astype(np.float32)
  first, second = rng.integers(0, 64, (2, 4000))
  rows = (centers[first] + centers[second]) / 2
  rows[0] = 0
  found = partition.order(rows, centers, metric)
  shuffled = rng.permutation(384)
  for some in (slice(None), slice(1, 7)):
    other = partition.order(
      rows[some][:, shuffled], centers[:, shuffled], metric
    )
    np.testing.assert_array_equal(other, found[some])


@pytest.mark.parametrize('metric', ['dot_product', 'squared_l2'])
def test_order_is_that_of_the_metric(metric):
  rng = np.random.default_rng(2)
  rows, centers = rng.standard_normal((2, 20, 5)).astype(np.float32)
  scores = rows @ centers.T
  if metric == 'squared_l2':
    scores = -((rows[:, None] - centers) ** 2).sum(2)
  wanted = np.argsort(-scores, axis=1)
  np.testing.assert_array_equal(partition.order(rows, centers, metric), wanted)
