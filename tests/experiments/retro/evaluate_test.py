# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The evaluating command on a tiny model and data folder."""

import functools
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.retro import (
  copying as retro_copying,
  editing as retro_editing,
  evaluate as retro_evaluate,
)
from retrieval.questions import bootstrap
from retro_jax.data import windows as windows_lib
from retro_jax.evaluation import copying, evaluate
from retro_jax.trained import language_model, loading
from tests.experiments.retro import tiny_retro
from tests.retro_jax.data import tiny_data


@pytest.fixture(scope='module')
def root(tmp_path_factory):
  return tiny_data.make(tmp_path_factory.mktemp('data'))


@pytest.fixture
def runs(root, monkeypatch):
  """Makes 'retro' and 'baseline' loadable."""
  trained = {
    name: tiny_retro.trained(root, name == 'baseline')
    for name in ('retro', 'baseline')
  }
  asked = []

  def load(workdir, data_dir='', **unused_placement):
    asked.append((str(workdir), data_dir))
    return trained[str(workdir).split('/')[-1]]

  monkeypatch.setattr(language_model, 'load', load)
  return asked


def test_evaluates_all_modes_and_the_baseline(root, runs, tmp_path, capsys):
  config = tiny_retro.trained(root).config
  config.evaluate.baseline_workdir = 'baseline'
  config.evaluate.oracle = True
  workdir = tmp_path / 'retro'
  retro_evaluate.run(config, str(workdir))
  found = json.loads((workdir / 'evaluation.json').read_text())
  rows = {row['name']: row for row in found['rows']}
  assert list(rows) == [
    'RETRO, k=1',
    'RETRO, k=3',
    'RETRO off',
    'RETRO shuffled, k=1',
    'RETRO oracle',
    'baseline',
  ]
  assert runs == [(str(workdir), ''), ('baseline', str(root))]
  off = rows['RETRO off']
  assert off['minus_off'] is None
  for name, row in rows.items():
    assert row['documents'] == 4
    assert row['tokens'] == off['tokens'] > 0
    assert row['step'] == (20 if name == 'baseline' else 10)
    if name != 'RETRO off':
      difference = row['bits_per_byte'] - off['bits_per_byte']
      assert row['minus_off']['mean'] == pytest.approx(difference)
    if name == 'baseline':
      assert row['minus_baseline'] is None
      continue
    difference = row['bits_per_byte'] - rows['baseline']['bits_per_byte']
    assert row['minus_baseline']['mean'] == pytest.approx(difference)
  assert found['settings']['num_neighbors'] == [1, 3]
  printed = capsys.readouterr().out
  assert all(f' {name} ' in printed for name in rows)
  assert f'{off["bits_per_byte"]:.4f}' in printed


@pytest.mark.parametrize('name', ['retro', 'baseline'])
def test_copying_is_mixed_with_the_model_alone(
  root, runs, tmp_path, capsys, name
):
  config = tiny_retro.trained(root, name == 'baseline').config
  workdir = tmp_path / name
  retro_evaluate.run(config, str(workdir))
  retro_copying.run(config, str(workdir))
  evaluated = json.loads((workdir / 'evaluation.json').read_text())['rows']
  off = {row['name']: row for row in evaluated}[
    'baseline' if name == 'baseline' else 'RETRO off'
  ]
  alone, mixed, shuffled = json.loads((workdir / 'copying.json').read_text())[
    'rows'
  ]
  assert alone['bits_per_byte'] == pytest.approx(off['bits_per_byte'], rel=1e-5)
  # The weights are those of the other split, for which they serve best.
  config.evaluate.update({'split': 'test', 'max_documents': 0})
  trained = tiny_retro.trained(root, name == 'baseline')
  mixture = copying.Mixture(
    functools.partial(
      loading.batch_nll, trained.model, jax.device_put(trained.params)
    ),
    tiny_data.M,
  )
  bits = []
  for _ in range(2):
    found = retro_evaluate.measure(
      mixture, tiny_data.reader(root, 'test', 1), trained, config, 'on', 'test'
    )
    bits.append(found.bits_per_byte)
    mixture.fit()
  np.testing.assert_allclose(mixed['weights'], mixture.weights, atol=0.005)
  assert bits[1] < bits[0] and len(shuffled['weights']) == 4
  assert 'What 1 neighbors of each chunk hold' in capsys.readouterr().out
  config.evaluate.split = 'nowhere'
  with pytest.raises(FileNotFoundError, match='chunks-nowhere'):
    retro_copying.run(config, str(workdir))


def test_edits_begin_with_the_model_alone(root, runs, tmp_path, capsys):
  config = tiny_retro.trained(root, baseline=True).config
  workdir = tmp_path / 'baseline'
  retro_evaluate.run(config, str(workdir))
  retro_editing.run(config, str(workdir))
  (off,) = json.loads((workdir / 'evaluation.json').read_text())['rows']
  found = json.loads((workdir / 'editing.json').read_text())
  alone, *edits = found['rows']
  assert alone['nats'] == pytest.approx(off['nats'], rel=1e-5)
  assert found['num_neighbors'] == 1
  for row in edits:
    assert row['tokens'] == off['tokens'] and row['nats'] != alone['nats']
    difference = row['bits_per_byte'] - alone['bits_per_byte']
    assert row['minus_alone']['mean'] == pytest.approx(difference)
    assert len(row['weights']) == 2
    np.testing.assert_allclose(np.sum(row['weights'], -1), 1)
  assert edits[0]['nats'] != edits[1]['nats']
  assert '1 neighbors of each chunk' in capsys.readouterr().out


def test_sharded_scores_equal_those_of_one_pass(root, runs):
  """Eight devices and rows of several documents against numpy, one by one."""
  trained = tiny_retro.trained(root)
  config = trained.config
  config.evaluate.num_neighbors = (2,)
  config.evaluate.max_documents = 0
  config.mesh.update({'data': 2, 'fsdp': 2, 'tensor': 2})
  config.evaluate.shuffled = False
  trained.config.sequence_chunks = 16
  on = retro_evaluate.evaluate_trained(trained, config)[0]
  reader = tiny_data.reader(root, 'valid')
  documents = windows_lib.find_documents(reader.stores.chunks)
  assert len(on.evaluation.nats) == len(documents.index)
  score = jax.jit(evaluate.score_chunks, static_argnums=0)
  params = jax.tree.map(jnp.asarray, trained.params)
  for d in np.flatnonzero(documents.count <= 16)[:3]:
    ids = np.full(16, -1)
    ids[: documents.count[d]] = documents.first[d] + np.arange(
      documents.count[d]
    )
    row = {name: jnp.asarray(x)[None] for name, x in reader.read(ids).items()}
    want = score(trained.model, params, row).sum()
    np.testing.assert_allclose(on.evaluation.nats[d], want, rtol=2e-5)


def test_evaluation_errors(root, runs):
  config = tiny_retro.trained(root).config
  with pytest.raises(ValueError, match='names a model that retrieves'):
    retro_evaluate.evaluate_workdir(config, 'retro', 'retro')
  config.evaluate.num_neighbors = (4,)
  with pytest.raises(ValueError, match='4 is more than the 3 stored'):
    retro_evaluate.evaluate_workdir(config, 'retro')
  config.evaluate.num_neighbors = ()
  with pytest.raises(ValueError, match='evaluate.num_neighbors'):
    retro_evaluate.evaluate_workdir(config, 'retro')
  with pytest.raises(ValueError, match='evaluate.num_neighbors'):
    retro_copying.run(config, 'retro')


def test_what_is_not_finite_is_written_as_null(root, tmp_path):
  none = np.zeros(1)
  result = retro_evaluate.Result(
    'RETRO, k=1',
    'on',
    1,
    10,
    evaluate.Evaluation(none, none, none, none),
    bootstrap.Interval(math.nan, -math.inf, 0.5),
  )
  path = retro_evaluate.write(
    [result], tiny_retro.trained(root).config, tmp_path
  )
  (row,) = json.loads(path.read_text())['rows']
  assert row['bits_per_byte'] is None
  assert row['minus_off'] == {'mean': None, 'low': None, 'high': 0.5}
