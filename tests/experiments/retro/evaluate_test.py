# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The evaluators on a tiny model and data folder."""

import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.retro import evaluate as retro_evaluate
from retro_jax.data import windows as windows_lib
from retro_jax.evaluation import copying
from retro_jax.nn import losses
from retro_jax.trained import loading
from tests.experiments.retro import tiny_config, tiny_retro
from tests.retro_jax.data import tiny_data


@pytest.fixture
def runs(root, monkeypatch):
  return tiny_retro.load_from(root, monkeypatch)


def _evaluate(workdir, config=None, **settings):
  evaluate = tiny_retro.evaluate(**settings)
  retro_evaluate.evaluate(config or tiny_config.of(), str(workdir), evaluate)
  return json.loads((workdir / 'evaluation.json').read_text())


def test_evaluates_all_modes_and_the_baseline(root, runs, tmp_path, capsys):
  workdir = tmp_path / 'retro'
  found = _evaluate(workdir, baseline_workdir='baseline', oracle=True)
  rows = {row['name']: row for row in found['rows']}
  assert list(rows) == [
    'RETRO, k=1',
    'RETRO, k=3',
    'RETRO off',
    'RETRO shuffled, k=1',
    'RETRO oracle',
    'baseline',
  ]
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


@pytest.mark.parametrize('name', ['retro', 'baseline'])
def test_copying_is_mixed_with_the_model_alone(root, runs, tmp_path, name):
  workdir = tmp_path / name
  evaluators = ('bits_per_byte', 'copying')
  evaluated = _evaluate(workdir, evaluators=evaluators)['rows']
  off = {row['name']: row for row in evaluated}[
    'baseline' if name == 'baseline' else 'RETRO off'
  ]
  rows = json.loads((workdir / 'copying.json').read_text())['rows']
  alone, mixed, shuffled = rows
  assert alone['bits_per_byte'] == pytest.approx(off['bits_per_byte'], rel=1e-5)
  # The weights are those of the other split, for which they serve best.
  trained = tiny_retro.trained(root, name == 'baseline')
  mixture = copying.Mixture(
    functools.partial(
      loading.batch_nll, trained.model, jax.device_put(trained.params)
    ),
    tiny_data.M,
  )
  bits, other = [], tiny_retro.evaluate(split='test', max_documents=0)
  for _ in range(2):
    reader = tiny_data.reader(root, 'test', 1)
    found = retro_evaluate.measure(
      mixture, reader, trained, other, 'on', 'test', 0
    )
    bits.append(found.bits_per_byte)
    mixture.fit()
  np.testing.assert_allclose(mixed['weights'], mixture.weights, atol=0.005)
  assert bits[1] < bits[0] and len(shuffled['weights']) == 4


def test_sharded_scores_equal_those_of_one_pass(root):
  """Eight devices and rows of several documents against numpy, one by one."""
  trained = tiny_retro.trained(root)
  long = dataclasses.replace(trained.config, sequence_chunks=16)
  trained = dataclasses.replace(trained, config=long)
  mesh = {'mesh.data': 2, 'mesh.fsdp': 2, 'mesh.tensor': 2}
  settings = {'num_neighbors': (2,), 'max_documents': 0, 'shuffled': False}
  on = retro_evaluate.evaluate_trained(
    trained, tiny_config.of(**mesh), tiny_retro.evaluate(**settings)
  )['RETRO, k=2']
  reader = tiny_data.reader(root, 'valid')
  documents = windows_lib.find_documents(reader.stores.chunks)
  assert len(on.nats) == len(documents.index)
  score = jax.jit(losses.batch_nll, static_argnums=0)
  params = jax.tree.map(jnp.asarray, trained.params)
  for d in np.flatnonzero(documents.count <= 16)[:3]:
    ids = np.full(16, -1)
    ids[: documents.count[d]] = documents.first[d] + np.arange(
      documents.count[d]
    )
    row = {name: jnp.asarray(x)[None] for name, x in reader.read(ids).items()}
    want = score(trained.model, params, row).sum()
    np.testing.assert_allclose(on.nats[d], want, rtol=2e-5)


def test_evaluation_errors(runs, tmp_path):
  with pytest.raises(ValueError, match='baseline_workdir'):
    _evaluate(tmp_path / 'retro', baseline_workdir='retro')
  with pytest.raises(ValueError, match='num_neighbors'):
    _evaluate(tmp_path / 'retro', num_neighbors=(4,))
  for name, value in (('num_neighbors', ()), ('evaluators', ('none',))):
    with pytest.raises(ValueError, match=name):
      tiny_retro.evaluate(**{name: value})
