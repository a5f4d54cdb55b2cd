# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Teaching a tiny embedder: killed and continued, refreshed, used, refused."""

import shutil

import jax
import numpy as np
import pytest

from experiments.engine import metric_writer
from experiments.retro import prepare as retro_prepare
from experiments.taught import (
  task as taught_task,
  versions,
)
from retrieval.nn import embedders
from retrieval.store import checkpoints
from retrieval.text import tokens
from retro_jax.data import folder as retro_data
from tests.experiments.engine import tiny_run
from tests.experiments.retro import tiny_config
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
  for split in ('train', *tokens.HELD_OUT):
    shutil.rmtree(root / 'data' / f'neighbors-{split}')
  for stage in STAGES:
    stage(_config(root), retro_data.DataFolder(root / 'data'))
  tiny_run.make_run(
    root / 'retro', root / 'data', num_layers=1, cca_layers=(1,)
  )
  return root


def _config(root, fields=(), **retriever):
  retriever = {
    'language_model': str(root / 'retro'),
    'max_length': 8,
    'lm_temperature': 0.01,
    'refresh_every': 2,
  } | retriever
  fields = {
    'embedder.path': str(root / 'embedder'),
    'embedder.max_length': 8,
    'neighbors.stored': 3,
    'eval_batches': 0,
    'checkpoint_every': 1,
    'optimizer.learning_rate': 0.01,
  } | dict(fields)
  fields |= {f'retriever.{name}': value for name, value in retriever.items()}
  return tiny_config.tiny('retro_retriever_quickstart', **fields)


def _losses(workdir):
  return [row['loss'] for row in metric_writer.read(workdir) if 'loss' in row]


@pytest.fixture(scope='module')
def run(root):
  taught_task.train(_config(root), str(root / 'run'))
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
  splits = (f'chunks-{split}' for split in ('train', *tokens.HELD_OUT))
  for name in ('tokenizer', 'tokens', *splits):
    shutil.copytree(root / 'data' / name, other / name)
  config = _config(root, {'embedder.path': str(version / 'embedder')})
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
      taught_task.train(_config(root), str(tmp_path))
  assert checkpoints.find(str(tmp_path)).step == 1
  taught_task.train(_config(root), str(tmp_path))
  assert _losses(tmp_path) == _losses(run)
  file = 'embedder/model.safetensors'
  assert (tmp_path / file).read_bytes() == (run / file).read_bytes()
  # Beyond the refresh, a checkpoint names the version that it needs.
  (version,) = (tmp_path / 'index').iterdir()
  shutil.rmtree(version)
  config = _config(root, {'num_steps': 5})
  with pytest.raises(FileNotFoundError, match=f'{version.name}, which does'):
    taught_task.train(config, str(tmp_path))


def test_bad_input_ends_in_one_line(root):
  for fields, retriever, said in (
    ({}, {'language_model': ''}, 'language_model'),
    ({}, {'language_model': str(root / 'none')}, 'none'),
    ({}, {'num_candidates': 4}, 'retriever.num_candidates=4'),
    ({'neighbors.stored': 5}, {'num_candidates': 4}, 'than the 3 stored'),
    ({}, {'queries': 4}, 'retriever.queries=4'),
    ({}, {'max_length': 9}, 'retriever.max_length=9'),
    ({'embedder.max_length': 9}, {}, 'vectors-train: embedded with'),
  ):
    with pytest.raises((ValueError, FileNotFoundError), match=said) as error:
      config = _config(root, fields, **retriever)
      taught_task.train(config, str(root / 'refused'))
    assert '\n' not in str(error.value)


@pytest.mark.slow
def test_a_decoder_without_retrieval_teaches(root, tmp_path):
  """It reads the candidates as prefixes."""
  tiny_run.make_run(
    tmp_path / 'baseline',
    root / 'data',
    'baseline_test',
    num_layers=1,
    cca_layers=(1,),
  )
  baseline = str(tmp_path / 'baseline')
  config = _config(root, {'eval_batches': 1}, language_model=baseline)
  taught_task.train(config, str(tmp_path / 'run'))
  rows = metric_writer.read(tmp_path / 'run')
  losses = [row['loss'] for row in rows if 'loss' in row]
  assert len({*losses}) == 4 and min(losses) > 0
  assert any(row.get('valid/helpful', 0) > 0 for row in rows)
  after = embedders.Embedder.load(tmp_path / 'run' / 'embedder', max_length=8)
  before = embedders.Embedder.load(root / 'embedder', max_length=8)
  assert after.fingerprint != before.fingerprint
