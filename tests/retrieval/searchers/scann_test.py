# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""ScaNN's failures on bad input do not reach a user."""

import shutil
import subprocess
import sys

import numpy as np
import pytest

from retrieval import searchers
from tests.retrieval.searchers import clusters

pytestmark = pytest.mark.skipif(
  not searchers.scann_available(), reason='ScaNN exists for Linux only.'
)
METRICS = ('dot_product', 'squared_l2')


@pytest.fixture(scope='module', params=METRICS)
def built(request):
  vectors = clusters.clustered()
  return searchers.ScannSearcher.build(vectors, request.param), vectors


def test_agrees_with_exact_search(built):
  searcher, vectors = built
  exact = searchers.ExactSearcher(vectors, searcher.metric)
  queries = vectors[:200] + np.float32(0.1)
  ids, scores = searcher.search(queries, 10)
  want_ids, want_scores = exact.search(queries, 10)
  same = (ids[:, :, None] == want_ids[:, None]).any(1)
  assert ids.dtype == np.int64 and scores.dtype == np.float32
  assert same.mean() > 0.95
  # Rescored in float32: the scores are those of exact search, and fall.
  np.testing.assert_allclose(
    scores, exact.score(queries, ids), rtol=1e-4, atol=1e-4
  )
  assert (np.diff(scores) <= 0).all()
  # Rank by rank nothing beats the exact answer; builds differ in the rest.
  assert (scores <= want_scores + 1e-4).all()


@pytest.mark.parametrize('value', [np.nan, np.inf])
def test_row_that_would_abort_the_process(value):
  vectors = clusters.clustered()
  vectors[4321, 3] = value
  with pytest.raises(ValueError, match='Database row 4321 holds NaN or inf'):
    searchers.ScannSearcher.build(vectors, 'dot_product')


@pytest.mark.parametrize('soar', [False, True])
def test_fewer_than_k_come_from_other_leaves(soar):
  """Small leaves and few rescored rows: still k rows, each once."""
  vectors = clusters.clustered(600)
  searcher = searchers.ScannSearcher.build(
    vectors,
    'dot_product',
    searchers.ScannConfig(
      num_leaves=200, num_leaves_to_search=1, num_to_rescore=5, soar=soar
    ),
  )
  for k in (50, 600):
    ids, scores = searcher.search(vectors[:20], k)
    assert (ids >= 0).all() and np.isfinite(scores).all()
    assert all(len(set(row)) == k for row in ids.tolist())


def test_k_beyond_the_database_is_masked(built):
  searcher, vectors = built
  ids, scores = searcher.search(vectors[:3], len(vectors) + 5)
  assert (ids[:, -5:] == -1).all() and np.isneginf(scores[:, -5:]).all()
  assert (np.sort(ids[:, :-5]) == np.arange(len(vectors))).all()


@pytest.mark.usefixtures('unchecked')
@pytest.mark.parametrize(
  'settings',
  [
    {'num_leaves': 5001},
    {'num_leaves_to_search': 5001},
    {'training_sample_size': 10},
    {'num_to_rescore': 9999},
    {'rescore': 'int4'},
  ],
)
def test_settings_scann_would_not_survive(settings):
  (name,) = settings
  with pytest.raises(ValueError, match=name):
    searchers.ScannSearcher.build(
      clusters.clustered(), 'dot_product', searchers.ScannConfig(**settings)
    )


def test_soar_and_metrics():
  config = searchers.ScannConfig(soar=True)
  for metric, given in ('squared_l2', config), ('cosine', None):
    with pytest.raises(ValueError, match='metric'):
      searchers.ScannSearcher.build(clusters.clustered(), metric, given)


def test_too_few_rows():
  with pytest.raises(ValueError, match='needs 16 rows'):
    searchers.ScannSearcher.build(clusters.clustered(15), 'dot_product')


@pytest.mark.parametrize('rescore', ['bfloat16', 'int8'])
def test_smaller_rescoring(rescore):
  vectors = clusters.clustered()
  searcher = searchers.ScannSearcher.build(
    vectors, 'dot_product', searchers.ScannConfig(rescore=rescore)
  )
  want, _ = searchers.ExactSearcher(vectors).search(vectors[:100], 10)
  ids, _ = searcher.search(vectors[:100], 10)
  assert (ids[:, :, None] == want[:, None]).any(1).mean() > 0.85


def test_saved_moved_and_loaded_answers_the_same(built, tmp_path):
  searcher, vectors = built
  want = searcher.search(vectors[:50], 10)
  searcher.save(tmp_path / 'a')
  assert not list((tmp_path / 'a').glob('*.pkl'))
  for file in (tmp_path / 'a').iterdir():
    assert str(tmp_path).encode() not in file.read_bytes()
  shutil.move(tmp_path / 'a', tmp_path / 'b')
  again = searchers.load(tmp_path / 'b')
  assert (again.metric, again.num_vectors) == (searcher.metric, 5000)
  assert again.settings == searcher.settings
  for a, b in zip(again.search(vectors[:50], 10), want, strict=True):
    np.testing.assert_array_equal(a, b)


def test_truncated_and_missing_files(built, tmp_path):
  searcher, _ = built
  searcher.save(tmp_path / 'whole')
  names = [f.name for f in (tmp_path / 'whole').iterdir()]
  for name in names:
    for cut in (True, False):
      folder = tmp_path / f'{name}-{cut}'
      shutil.copytree(tmp_path / 'whole', folder)
      if cut:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: len(data) // 2])
      else:
        (folder / name).unlink()
      with pytest.raises((ValueError, FileNotFoundError), match=name):
        searchers.load(folder)


@pytest.mark.slow
def test_imports_beside_a_tensorflow_that_breaks_it(tmp_path):
  """ScaNN looks for TensorFlow when imported; ours keeps it from that."""
  (tmp_path / 'tensorflow.py').write_text('raise RuntimeError("undefined")')
  code = (
    'import sys\n'
    'from retrieval import searchers\n'
    'assert "scann" not in sys.modules, "not lazy"\n'
    'assert searchers.scann_available()\n'
    'assert "tensorflow" not in sys.modules'
  )
  path = [str(tmp_path), *sys.path]
  run = f'import sys; sys.path[:] = {path!r}\n{code}'
  subprocess.run([sys.executable, '-c', run], check=True)


def test_without_scann_the_message_says_what_serves(monkeypatch):
  monkeypatch.setitem(sys.modules, 'scann.scann_ops.py', None)
  assert not searchers.scann_available()
  with pytest.raises(searchers.ScannUnavailableError, match='searcher exact'):
    searchers.ScannSearcher.build(clusters.clustered(), 'dot_product')
