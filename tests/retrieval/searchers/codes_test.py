# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from retrieval import searchers
from retrieval.searchers import codes


@pytest.fixture(scope='module')
def vectors():
  rng = np.random.default_rng(0)
  scale = np.exp(rng.standard_normal((3000, 1)))
  return (scale * rng.standard_normal((3000, 24))).astype(np.float32)


def test_no_value_moves_by_more_than_half_its_scale(vectors):
  rows = vectors.copy()
  rows[7] = 0
  some, scales = codes.encode(rows)
  assert some.dtype == np.int8 and np.abs(some).max() == 127
  error = np.abs(some * scales[:, None] - rows)
  assert (error <= 0.501 * scales[:, None]).all()
  assert not some[7].any() and scales[7] == 0


@pytest.mark.parametrize('metric', ['dot_product', 'squared_l2'])
def test_finds_the_best_rows_of_the_codes(
  tmp_path, monkeypatch, vectors, metric
):
  monkeypatch.setattr(codes, '_BLOCK_BYTES', 10_000)  # many blocks
  codes.write(tmp_path, vectors, metric)
  found = searchers.load(tmp_path)
  some, scales = codes.encode(vectors)
  rows = some * scales[:, None]
  wanted = searchers.ExactSearcher(rows, metric).search(vectors[:20], 5)
  for a, b in zip(found.search(vectors[:20], 5), wanted, strict=True):
    np.testing.assert_array_equal(a, b)
  found.save(tmp_path / 'again')
  for name in ('codes.npy', 'scales.npy', 'searcher.json'):
    again = (tmp_path / 'again' / name).read_bytes()
    assert again == (tmp_path / name).read_bytes()


def test_damage_names_the_file(tmp_path, vectors):
  codes.write(tmp_path, vectors, 'dot_product')
  np.save(tmp_path / 'scales.npy', np.ones(7, np.float32))
  with pytest.raises(ValueError, match='scales.npy: holds float32 .7,.'):
    searchers.load(tmp_path)
