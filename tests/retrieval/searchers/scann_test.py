# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""ScaNN's failures on bad input do not reach a user."""

import subprocess
import sys

import numpy as np
import pytest

from retrieval import searchers
from tests.retrieval.searchers import clusters

pytestmark = clusters.NEEDS_SCANN


@pytest.mark.parametrize('value', [np.nan, np.inf])
def test_row_that_would_abort_the_process(value):
  vectors = clusters.clustered()
  vectors[4321, 3] = value
  with pytest.raises(ValueError, match='Database row 4321 holds NaN or inf'):
    searchers.ScannSearcher.build(vectors, 'dot_product')


def test_fewer_than_k_come_from_other_leaves():
  """Small leaves and few rescored rows: still k rows, each once."""
  vectors = clusters.clustered(600)
  searcher = searchers.ScannSearcher.build(
    vectors,
    'dot_product',
    searchers.ScannConfig(
      num_leaves=200, num_leaves_to_search=1, num_to_rescore=5
    ),
  )
  for k in (50, 600):
    ids, scores = searcher.search(vectors[:20], k)
    assert (ids >= 0).all() and np.isfinite(scores).all()
    assert all(len(set(row)) == k for row in ids.tolist())


@pytest.mark.usefixtures('unchecked')
@pytest.mark.parametrize(
  'settings',
  [
    {'num_leaves': 5001},
    {'num_leaves_to_search': 5001},
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


@pytest.mark.parametrize(
  ('rows', 'metric', 'said'),
  [(15, 'dot_product', 'needs 16 rows'), (50, 'cosine', 'metric')],
)
def test_too_few_rows_and_another_metric(rows, metric, said):
  with pytest.raises(ValueError, match=said):
    searchers.ScannSearcher.build(clusters.clustered(rows), metric)


@pytest.mark.parametrize('rescore', ['bfloat16', 'int8'])
def test_smaller_rescoring(rescore):
  vectors = clusters.clustered()
  searcher = searchers.ScannSearcher.build(
    vectors, 'dot_product', searchers.ScannConfig(rescore=rescore)
  )
  want, _ = searchers.ExactSearcher(vectors).search(vectors[:100], 10)
  ids, _ = searcher.search(vectors[:100], 10)
  assert (ids[:, :, None] == want[:, None]).any(1).mean() > 0.85


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
