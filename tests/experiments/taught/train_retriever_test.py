# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Teaching a tiny embedder: killed and continued, refreshed, used, refused."""

import shutil

import jax
import numpy as np
import pytest

from configs import retro_retriever_quickstart
from experiments.engine import metric_writer
from experiments.retro import prepare as retro_prepare
from experiments.taught import task as taught_task, train_retriever, versions
from retrieval.nn import embedders
from retrieval.store import checkpoints
from retrieval.text import chunks
from retro_jax.data import folder as retro_data
from tests.experiments.engine import tiny_run
from tests.retrieval.nn import tiny_embedder
from tests.retro_jax.data import tiny_data

STAGES = (
  retro_prepare.embed,
  retro_prepare.build_index,
  retro_prepare.find_neighbors,
)


class Killed(BaseException):
  """Ends a run where it is, as kill -9 would."""


@pytest.fixture(scope='module')
def root(tmp_path_factory):
  """A folder with data, embedder and RETRO."""
  root = tmp_path_factory.mktemp('root')
  tiny_embedder.save(root / 'embedder', tiny_data.WORDS)
  (root / 'data').mkdir()
  tiny_data.make(root / 'data')
  for split in ('train', *chunks.HELD_OUT):
    shutil.rmtree(root / 'data' / f'neighbors-{split}')
  for stage in STAGES:
    stage(_config(root), retro_data.DataFolder(root / 'data'))
  tiny_run.make_run(
    root / 'retro', root / 'data', num_layers=1, cca_layers=(1,)
  )
  return root


def _config(root, **retriever):
  config = retro_retriever_quickstart.get_config('test')
  config.retriever.update(
    {
      'language_model': str(root / 'retro'),
      'max_length': 8,
      'lm_temperature': 0.01,
      'refresh_every': 2,
    }
    | retriever
  )
  config.embedder.update(path=str(root / 'embedder'), max_length=8)
  config.neighbors.update(stored=3, validate=0.0)
  config.eval_batches = 0
  config.checkpoint_every = 1
  config.optimizer.learning_rate = 0.01
  return config


def _losses(workdir):
  return [row['loss'] for row in metric_writer.read(workdir) if 'loss' in row]


@pytest.fixture(scope='module')
def run(root):
  train_retriever.run(_config(root), str(root / 'run'))
  return root / 'run'


def test_the_embedder_moves_and_the_language_model_stays(root, run):
  before = embedders.Embedder.load(root / 'embedder', max_length=8)
  after = embedders.Embedder.load(run / 'embedder', max_length=8)
  moved = jax.tree.map(
    lambda a, b: np.abs(a - b).max(), before.params, after.params
  )
  assert moved['layer_0']['attention']['query']['kernel'] > 1e-3
  assert moved['embeddings']['word']['embedding'] > 1e-3
  taught, saved = checkpoints.load_params(str(run))
  retro, _ = checkpoints.load_params(str(root / 'retro'))
  jax.tree.map(np.testing.assert_array_equal, taught['language_model'], retro)
  jax.tree.map(np.testing.assert_array_equal, taught['embedder'], after.params)
  assert saved.step == 4 and saved.index_version.startswith('0000000002-')
  rows = [row for row in metric_writer.read(run) if 'loss' in row]
  assert [row['index_age_steps'] for row in rows] == [0, 1, 0, 1]


def test_a_version_has_the_neighbors_of_its_embedder(root, run):
  """`prepare` finds the same neighbors with this embedder."""
  (version,) = (run / 'index').iterdir()
  other = root / 'other'
  other.mkdir()
  splits = (f'chunks-{split}' for split in ('train', *chunks.HELD_OUT))
  for name in ('tokenizer', 'tokens', *splits):
    shutil.copytree(root / 'data' / name, other / name)
  config = _config(root)
  config.embedder.path = str(version / 'embedder')
  for stage in STAGES:
    stage(config, retro_data.DataFolder(other))
  for split in ('train', 'valid'):
    data = retro_data.DataFolder(root / 'data')
    found = versions.Version(version, base=data).neighbors(split)
    want = retro_data.DataFolder(other).neighbors(split)
    first = data.neighbors(split)
    ids = np.arange(len(want))
    np.testing.assert_array_equal(found.ids(ids), want.ids(ids))
    assert (found.ids(ids) != first.ids(ids)).any()
    own = data.chunks(split).document_hashes(ids)[:, None]
    theirs = data.chunks('train').document_hashes(np.maximum(want.ids(ids), 0))
    assert not ((theirs == own) & (want.ids(ids) >= 0)).any()


@pytest.mark.slow
@pytest.mark.parametrize('stage', ['embed', 'find_neighbors'])
def test_a_killed_run_continues_bit_for_bit(
  root, run, stage, tmp_path, monkeypatch
):
  """Killed while the index is refreshed, after its embedder is written."""

  def kill(*args):
    raise Killed

  with monkeypatch.context() as patched:
    patched.setattr(retro_prepare, stage, kill)
    with pytest.raises(Killed):
      train_retriever.run(_config(root), str(tmp_path))
  assert checkpoints.find(str(tmp_path)).step == 1
  train_retriever.run(_config(root), str(tmp_path))
  assert _losses(tmp_path) == _losses(run)
  file = 'embedder/model.safetensors'
  assert (tmp_path / file).read_bytes() == (run / file).read_bytes()
  # Beyond the refresh, a checkpoint names the version that it needs.
  (version,) = (tmp_path / 'index').iterdir()
  shutil.rmtree(version)
  config = _config(root)
  config.num_steps = 5
  with pytest.raises(FileNotFoundError, match=f'{version.name}, which does'):
    train_retriever.run(config, str(tmp_path))


def _refused(config, root):
  with pytest.raises((ValueError, FileNotFoundError)) as error:
    train_retriever.run(config, str(root / 'refused'))
  assert '\n' not in str(error.value)
  return str(error.value)


def test_bad_input_ends_in_one_line(root):
  said = _refused(_config(root, language_model=''), root)
  assert "language_model='': expected the workdir" in said
  said = _refused(_config(root, language_model=str(root / 'none')), root)
  assert str(root / 'none') in said
  said = _refused(_config(root, num_candidates=4), root)
  assert 'num_candidates 4: expected at most config.neighbors.stored=3' in said
  config = _config(root, num_candidates=4)
  config.neighbors.stored = 5
  assert 'is more than the 3 stored' in _refused(config, root)
  assert 'queries 4: expected 1 to 3' in _refused(
    _config(root, queries=4), root
  )
  said = _refused(_config(root, max_length=9), root)
  assert 'expected at most config.embedder.max_length=8' in said
  config = _config(root)
  config.embedder.max_length = 9
  assert 'vectors-train: embedded with' in _refused(config, root)


@pytest.mark.slow
def test_a_decoder_without_retrieval_teaches(root, tmp_path):
  """It reads the candidates as prefixes."""
  tiny_run.make_run(
    tmp_path / 'baseline', root / 'data', 'baseline_test', num_layers=1
  )
  config = _config(root, language_model=str(tmp_path / 'baseline'))
  config.eval_batches = 1
  train_retriever.run(config, str(tmp_path / 'run'))
  rows = metric_writer.read(tmp_path / 'run')
  losses = [row['loss'] for row in rows if 'loss' in row]
  assert len({*losses}) == 4 and min(losses) > 0
  assert any(row.get('valid/helpful', 0) > 0 for row in rows)
  after = embedders.Embedder.load(tmp_path / 'run' / 'embedder', max_length=8)
  before = embedders.Embedder.load(root / 'embedder', max_length=8)
  assert after.fingerprint != before.fingerprint


@pytest.mark.parametrize('objective', ['pdist', 'emdr2'])
def test_temperatures_divide_the_scores_once(objective):
  """All objectives get cosines that `temperature` has divided already."""
  config = retro_retriever_quickstart.get_config('test')
  config.retriever.objective = objective
  bound = taught_task.bind_objective(config.retriever)
  assert bound.keywords.get('temperature_score', 1.0) == 1.0
  want = 0.05 if objective == 'pdist' else None
  assert bound.keywords.get('temperature_gold') == want
