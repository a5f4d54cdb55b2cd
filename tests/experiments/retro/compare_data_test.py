# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""One RETRO with the neighbors of two data folders, against plain evaluations."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from experiments.retro import compare_data, evaluate as retro_evaluate
from retro_jax.data import folder as retro_data
from retro_jax.evaluation import evaluate
from retro_jax.trained import loading
from tests.experiments.retro import tiny_trained
from tests.retro_jax.data import tiny_data


@pytest.fixture(scope='module')
def roots(tmp_path_factory):
  """A data folder, and one of the same chunks with other neighbors."""
  folder = tmp_path_factory.mktemp('folders')
  (folder / 'one').mkdir()
  tiny_data.make(folder / 'one')
  shutil.copytree(folder / 'one', folder / 'two')
  shutil.rmtree(folder / 'two' / 'neighbors-valid')
  data = retro_data.DataFolder(folder / 'two')
  chunks = [data.chunks(split) for split in ('valid', 'train')]
  rng = np.random.default_rng(9)
  tiny_data.write_neighbors(data.root, 'valid', *chunks, rng)
  return folder


@pytest.fixture
def config(roots, monkeypatch):
  """That of a tiny RETRO, which reads any of the folders."""
  found = tiny_trained.load_from(roots / 'one', monkeypatch)
  load_one = loading.load

  def load(workdir, data_dir='', **settings):
    one = load_one(workdir, **settings)
    data = retro_data.DataFolder(roots / data_dir.split('/')[-1])
    return dataclasses.replace(one, data=data)

  monkeypatch.setattr(loading, 'load', load)
  return found['retro'].config


def test_equals_the_evaluation_of_each_folder(roots, config, tmp_path, capsys):
  workdir = str(tmp_path / 'retro')
  values = [f'{name}={roots / name}' for name in ('one', 'two')]
  rows = compare_data.run(config, workdir, values)['rows']
  assert [row['name'] for row in rows] == ['one', 'off', 'two']
  results = {}
  for name in ('one', 'two'):
    config.data_dir = str(roots / name)
    trained, _ = retro_evaluate.load(config, workdir)
    on, off = retro_evaluate.evaluate_trained(
      trained, config, retro_evaluate.on_and_off(trained, config.evaluate)
    )
    results |= {name: on.evaluation, 'off': off.evaluation}
  for row in rows:
    one = results[row['name']]
    assert row['bits_per_byte'] == one.bits_per_byte
    want = dataclasses.asdict(evaluate.compare(one, results['one']))
    assert row['minus_first'] == (want if row['name'] != 'one' else None)
  assert results['one'].bits_per_byte != results['two'].bits_per_byte
  assert json.loads((tmp_path / 'retro' / compare_data.FILE).read_text())
  assert 'minus first' in capsys.readouterr().out


@pytest.mark.parametrize(
  'values, said',
  [
    (['one'], 'expected NAME=DIR'),
    (['one={one}', 'one={one}'], 'a new name'),
    (['one=nowhere'], 'a data folder'),
    (['off={one}'], "none of them 'off'"),
  ],
)
def test_bad_folders_are_refused(roots, config, tmp_path, values, said):
  values = [value.format(one=roots / 'one') for value in values]
  with pytest.raises(ValueError, match=said) as error:
    compare_data.run(config, str(tmp_path / 'retro'), values)
  assert '\n' not in str(error.value)


def test_a_baseline_is_refused(roots, config, tmp_path):
  values = [f'one={roots / "one"}']
  with pytest.raises(ValueError, match='a baseline; expected a RETRO'):
    compare_data.run(config, str(tmp_path / 'baseline'), values)
