# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
import json
import shutil

import jax
import ml_dtypes
import numpy as np
import pytest

from retrieval import searchers
from retrieval.searchers import block_search, matrix_search
from retrieval.store import sharded_array
from tests.retrieval.store import tiny_stores

METRICS = ('dot_product', 'squared_l2')


def oracle(database, queries, k, metric):
  """Ids and scores by float64, ties by the lower id."""
  rows = np.asarray(database, np.float32).astype(np.float64)[None]
  queries = queries.astype(np.float64)[:, None]
  if metric == 'squared_l2':
    scores = -((rows - queries) ** 2).sum(-1)
  else:
    scores = (rows * queries).sum(-1)
  ids = np.broadcast_to(np.arange(rows.shape[1]), scores.shape)
  order = np.lexsort((ids, -scores), axis=1)[:, :k]
  return order, np.take_along_axis(scores, order, 1)


def check(searcher, database, queries, k):
  ids, scores = searcher.search(queries, k)
  want_ids, want_scores = oracle(database, queries, k, searcher.metric)
  found = want_ids.shape[1]
  assert ids.shape == scores.shape == (len(queries), k)
  assert ids.dtype == np.int64 and scores.dtype == np.float32
  np.testing.assert_array_equal(ids[:, :found], want_ids)
  np.testing.assert_allclose(scores[:, :found], want_scores, rtol=1e-6)
  assert (ids[:, found:] == -1).all()
  assert np.isneginf(scores[:, found:]).all()


def random_database(kind, rng, num_rows, dimension):
  database = rng.standard_normal((num_rows, dimension)).astype(np.float32)
  if kind == 'whole numbers':  # many exact ties between different rows
    database = np.round(database)
  elif kind == 'copies':
    database[rng.integers(0, num_rows, num_rows // 2)] = database[0]
  elif kind == 'far':  # float32 alone cannot tell these rows apart
    database = (100 + 0.01 * database).astype(np.float32)
  elif kind == 'one':
    database[:] = database[0]
  return database


@pytest.fixture(params=['matrices', 'programs'])
def devices(request, monkeypatch):
  """Products of one CPU, in small blocks; programs of devices, as on accelerators."""
  if request.param == 'programs':
    return jax.devices()
  monkeypatch.setattr(matrix_search, '_SCORES', 1 << 13)
  monkeypatch.setattr(matrix_search, '_QUERIES', 3)
  return []


@pytest.mark.parametrize('metric', METRICS)
@pytest.mark.parametrize(
  'kind', ['normal', 'whole numbers', 'copies', 'far', 'one']
)
def test_equals_float64_oracle(kind, metric, devices):
  if devices and kind == 'far':
    pytest.skip('float32 does not tell these rows apart')
  rng = np.random.default_rng(0)
  shapes = [(1, 3, 2, 8, 0), (300, 16, 400, 1, 1 << 30), (9000, 8, 10, 1, 0)]
  for num_rows, dimension, k, num_devices, resident in shapes:
    database = random_database(kind, rng, num_rows, dimension)
    noise = rng.standard_normal((5, dimension)).astype(np.float32)
    if kind == 'whole numbers':
      noise = np.round(noise)
    if kind == 'far':
      noise *= np.float32(0.01)
    queries = database[rng.integers(0, num_rows, 5)] + noise * np.float32(0.5)
    searcher = searchers.ExactSearcher(
      database, metric, resident_bytes=resident, devices=devices[:num_devices]
    )
    check(searcher, database, queries, k)


@pytest.mark.parametrize('kind', ['copies', 'far', 'one'])
def test_more_candidates_than_are_held_are_scored_at_once(kind, monkeypatch):
  monkeypatch.setattr(matrix_search, '_HELD', 1000)
  monkeypatch.setattr(matrix_search, '_SCORES', 1 << 13)
  database = random_database(kind, np.random.default_rng(0), 9000, 8)
  for metric in METRICS:
    searcher = searchers.ExactSearcher(database, metric)
    check(searcher, database, database[:5], 10)
    check(searcher, database, database[:2], 700)


@pytest.mark.parametrize('num_scores', [1 << 28, 1 << 14])
def test_queries_take_turns_where_scores_are_many(num_scores, monkeypatch):
  rng = np.random.default_rng(0)
  database = rng.standard_normal((20_000, 16)).astype(np.float32)
  monkeypatch.setattr(block_search, '_SCORES', num_scores)
  block_search.search_block.clear_cache()
  searcher = searchers.ExactSearcher(database, devices=jax.devices()[:2])
  for k in 20, 400:
    check(searcher, database, database[:20], k)
  block_search.search_block.clear_cache()


def test_float32_queries_lose_nothing_beside_bfloat16_rows(monkeypatch):
  rng = np.random.default_rng(0)
  query = rng.standard_normal(64).astype(np.float32)
  rows = rng.standard_normal((70, 64)).astype(ml_dtypes.bfloat16)
  monkeypatch.setattr(block_search.backend, 'is_cpu', lambda: False)
  products = jax.jit(block_search._products)(query, rows)
  expected = rows.astype(np.float64) @ query.astype(np.float64)
  np.testing.assert_allclose(products, expected, atol=2e-5)


def test_shares_blocks_between_eight_devices():
  rng = np.random.default_rng(0)
  database = rng.standard_normal((150, 8)).astype(np.float32)
  searcher = searchers.ExactSearcher(database, devices=jax.devices())
  (block,) = searcher._read_blocks()
  shards = block.rows.addressable_shards
  assert len({s.device for s in shards}) == 8
  assert {s.data.shape[0] for s in shards} == {block.rows.shape[0] // 8}
  check(searcher, database, database[:3], 100)


def test_ids_pass_the_range_of_int32(monkeypatch):
  """Block numbers and rows are joined as int64."""
  database = np.eye(8, dtype=np.float32).repeat(512, axis=0)
  searcher = searchers.ExactSearcher(database, devices=jax.devices())
  [block] = searcher._read_blocks()
  monkeypatch.setattr(searcher, '_blocks_on_device', [block] * 3)
  monkeypatch.setattr(searcher, '_rows_per_block', 1 << 32)
  assert searcher._candidates(database[-1:], 1500).max() >= 2 << 32


@pytest.mark.parametrize('k', [1, 16, 20, 300])
def test_two_stage_top_k_breaks_ties_as_one_stage(k):
  rng = np.random.default_rng(0)
  scores = rng.standard_normal((6, 64 * block_search.GROUP), np.float32)
  scores = np.floor(2 * scores)  # groups of different maxima share values
  two_stages = jax.vmap(lambda x: block_search.top_k(x, k))
  values, ids = jax.jit(two_stages)(scores)
  want_values, want_ids = jax.lax.top_k(scores, k)
  np.testing.assert_array_equal(values, want_values)
  np.testing.assert_array_equal(ids, want_ids)


@pytest.mark.parametrize('metric', METRICS)
def test_bfloat16_rows_mapped_in_a_store_and_copied(tmp_path, metric, devices):
  """The two bytes that NumPy knows no name for come back as what they are."""
  rng = np.random.default_rng(0)
  database = rng.standard_normal((9000, 16)).astype(ml_dtypes.bfloat16)
  queries = rng.standard_normal((300, 16)).astype(np.float32)  # two batches
  np.save(tmp_path / 'database.npy', database)
  mapped = sharded_array.open_npy(tmp_path / 'database.npy')
  assert isinstance(mapped, np.memmap)
  stored = tiny_stores.write_vectors(tmp_path / 'store', database).array(
    'vectors'
  )
  for name, vectors in (('mapped', mapped), ('stored', stored)):
    assert vectors.dtype == ml_dtypes.bfloat16
    searcher = searchers.ExactSearcher(
      vectors, metric, resident_bytes=0, devices=devices[:1]
    )
    blocks = list(searcher._read_blocks())
    assert {b.rows.dtype for b in blocks} == {vectors.dtype}
    assert len(blocks) == (2 if devices else 1)
    check(searcher, database, queries, 10)
    assert '_blocks_on_device' not in vars(searcher)
    searcher.save(tmp_path / name)
    check(searchers.load(tmp_path / name), database, queries[:9], 10)
  fits = searchers.ExactSearcher(
    mapped, metric, resident_bytes=2 * 9000 * 16, devices=devices[:1]
  )
  check(fits, database, queries[:9], 10)
  assert ('_blocks_on_device' in vars(fits)) == bool(devices)


def test_scores_given_rows():
  database = np.eye(3, dtype=np.float32)
  searcher = searchers.ExactSearcher(database, 'squared_l2')
  scores = searcher.score(database[:1], np.array([[0, 2, -1]]))
  np.testing.assert_array_equal(scores, [[0, -2, -np.inf]])
  for ids in (np.array([[3]]), np.array([[0], [0]]), np.array([[0.5]])):
    with pytest.raises(ValueError, match='ids .*expected rows'):
      searcher.score(database[:1], ids)


@pytest.mark.parametrize('metric', METRICS)
def test_empty_database_and_no_queries(metric):
  empty = searchers.ExactSearcher(np.zeros((0, 4), np.float32), metric)
  ids, scores = empty.search(np.ones((2, 4)), 3)
  assert (ids == -1).all() and ids.shape == (2, 3)
  assert np.isneginf(scores).all()
  some = searchers.ExactSearcher(np.ones((5, 4), np.float32), metric)
  for searcher in (empty, some):
    ids, scores = searcher.search(np.zeros((0, 4), np.float32), 3)
    assert ids.shape == scores.shape == (0, 3)
    assert ids.dtype == np.int64 and scores.dtype == np.float32


@pytest.mark.parametrize('value', [np.nan, -np.inf, 1e20])
def test_names_the_row_that_cannot_be_searched(value, monkeypatch):
  monkeypatch.setattr(searchers.base, '_CHECK_BYTES', 1 << 14)
  rows = np.ones((70_000, 4), np.float32)
  searcher = searchers.ExactSearcher(rows[:9])
  rows[66_000, 2] = value
  with pytest.raises(ValueError, match='row 66000'):
    searchers.ExactSearcher(rows)
  with pytest.raises(ValueError, match='Query 2'):
    searcher.search(rows[65_998:66_003], 3)


ROWS = np.ones((5, 4), np.float32)


@pytest.mark.parametrize(
  'given',
  [
    (ROWS, 'cosine'),
    (ROWS[0],),
    (ROWS[:, :0],),
    ([[1.0, 2.0]],),
    (None,),
    (np.array([['a']]),),
    (ROWS * 1j,),
  ],
)
def test_refuses_a_database(given):
  with pytest.raises(ValueError, match='metric|expected .*floats|shape'):
    searchers.ExactSearcher(*given)


@pytest.mark.parametrize(
  ('queries', 'k'),
  [
    *((ROWS, k) for k in (0, -1, 1.5, '1', None)),
    *((ROWS[0], 1), (ROWS[:, :3], 1), (ROWS[None], 1), (ROWS * 1j, 1)),
    *(([], 1), (None, 1), (['who wrote it'], 1), ([[1.0], [1.0, 2.0]], 1)),
  ],
)
def test_refuses_queries(queries, k):
  what = 'Queries .*expected' if k == 1 else f'k={k!r}'
  with pytest.raises(ValueError, match=what):
    searchers.base.check_queries(queries, 4, k)
  if isinstance(queries, np.ndarray) and isinstance(k, int):
    with pytest.raises(ValueError, match=what):
      searchers.ExactSearcher(ROWS).search(queries, k)


@pytest.mark.parametrize('kind', ['float64', 'float16', 'int8', 'bfloat16'])
def test_takes_rows_and_queries_of_any_real_type(kind):
  rng = np.random.default_rng(0)
  database = (4 * rng.standard_normal((500, 8))).astype(kind)
  searcher = searchers.ExactSearcher(database)
  check(searcher, database, database[:3].astype(np.float32), 5)
  ids, _ = searchers.ExactSearcher(np.eye(4)).search(np.eye(4, dtype=kind), 1)
  assert ids.ravel().tolist() == [0, 1, 2, 3]


def answers(searcher, queries):
  return [a.tolist() for a in searcher.search(queries, 7)]


def test_a_saved_copy_answers_the_same_elsewhere(tmp_path):
  rng = np.random.default_rng(0)
  database = rng.standard_normal((500, 8))  # float64 is taken as float32
  searcher = searchers.ExactSearcher(database, 'squared_l2')
  want = answers(searcher, database[:9])
  searcher.save(tmp_path / 'a')
  database[:] = 0
  shutil.move(tmp_path / 'a', tmp_path / 'b')
  again = searchers.load(tmp_path / 'b')
  assert answers(again, np.load(tmp_path / 'b' / 'vectors.npy')[:9]) == want
  assert (again.name, again.num_vectors) == ('exact', 500)


def test_a_saved_reference_follows_its_store(tmp_path):
  rng = np.random.default_rng(0)
  database = rng.standard_normal((500, 8)).astype(np.float32)
  vectors = tiny_stores.write_vectors(
    tmp_path / 'a' / 'vectors', database
  ).array('vectors')
  searcher = searchers.ExactSearcher(vectors)
  searcher.save(tmp_path / 'a' / 'index')
  assert not list((tmp_path / 'a' / 'index').glob('*.npy'))
  shutil.move(tmp_path / 'a', tmp_path / 'b')
  again = searchers.load(tmp_path / 'b' / 'index')
  assert answers(again, database[:9]) == answers(
    searchers.ExactSearcher(database), database[:9]
  )
  shutil.move(tmp_path / 'b' / 'vectors', tmp_path / 'b' / 'elsewhere')
  with pytest.raises(ValueError, match='not there'):
    searchers.load(tmp_path / 'b' / 'index')
  tiny_stores.write_vectors(tmp_path / 'b' / 'vectors', database[::-1] + 1)
  with pytest.raises(ValueError, match='changed'):
    searchers.load(tmp_path / 'b' / 'index')


def test_damaged_files_say_so(tmp_path):
  searcher = searchers.ExactSearcher(np.ones((500, 8), np.float32))
  searcher.save(tmp_path)
  file = tmp_path / 'vectors.npy'
  whole = file.read_bytes()
  for size in (0, 40, len(whole) // 2):
    file.write_bytes(whole[:size])
    with pytest.raises(ValueError, match='vectors.npy: damaged'):
      searchers.load(tmp_path)
  for text in '{"name"', json.dumps({'name': 'other', 'metric': 'dot_product'}):
    (tmp_path / 'searcher.json').write_text(text)
    with pytest.raises(ValueError, match='searcher'):
      searchers.load(tmp_path)
  with pytest.raises(FileNotFoundError):
    searchers.load(tmp_path / 'nowhere')
