# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs, data folders and kinds of retrieval in one table, against plain evaluations."""

import dataclasses
import json
import math
import shutil

import numpy as np
import pytest

from experiments.retro import compare, evaluate as retro_evaluate
from retrieval.questions import bootstrap
from retro_jax.data import folder as retro_data
from retro_jax.trained import language_model
from tests.experiments.retro import tiny_config, tiny_retro
from tests.retro_jax.data import tiny_data
from tests.retro_jax.nn import tiny


@pytest.fixture(scope='module')
def roots(tmp_path_factory):
  """A data folder, one of the same chunks with other neighbors, and three runs."""
  folder = tmp_path_factory.mktemp('folders')
  (folder / 'one').mkdir()
  tiny_data.make(folder / 'one')
  shutil.copytree(folder / 'one', folder / 'two')
  shutil.rmtree(folder / 'two' / 'neighbors-valid')
  data = retro_data.DataFolder(folder / 'two')
  chunks = [data.chunks(split) for split in ('valid', 'train')]
  rng = np.random.default_rng(9)
  tiny_data.write_neighbors(data.root, 'valid', *chunks, rng)
  for name in ('retro', 'seed', 'baseline'):
    (folder / name).mkdir()
  return folder


@pytest.fixture
def config(roots, monkeypatch):
  """The config of a command. The run `seed` has other parameters."""
  tiny_retro.load_from(roots / 'one', monkeypatch)
  load_one = language_model.load

  def load(workdir, data_dir='', **settings):
    name = str(workdir).split('/')[-1]
    one = load_one(name.replace('seed', 'retro'), **settings)
    data = retro_data.DataFolder(roots / (data_dir or 'one').split('/')[-1])
    if name == 'seed':
      one = dataclasses.replace(one, params=tiny.params(one.model.config, 1))
    return dataclasses.replace(one, data=data)

  monkeypatch.setattr(language_model, 'load', load)
  return tiny_config.of()


def _evaluated(config, roots, run, retrieval='on', data='', k=1):
  config = dataclasses.replace(config, data_dir=data)
  evaluate = tiny_retro.evaluate_one()
  trained = retro_evaluate.load(config, evaluate, str(roots / run))
  reading = retro_evaluate.Reading(retrieval=retrieval, k=k)
  return retro_evaluate.evaluate_trained(
    trained, config, evaluate, {'x': reading}
  )['x']


def test_rows_are_those_of_the_evaluations(
  roots, config, tmp_path, capsys, monkeypatch
):
  monkeypatch.setattr(bootstrap, 'LEAST', 2)
  rows = compare.compare(
    config,
    str(tmp_path),
    tiny_retro.evaluate_one(),
    [
      f'on={roots / "retro"}',
      f'other data={roots / "retro"},data={roots / "two"}',
      f'off={roots / "retro"},retrieval=off',
      f'more={roots / "retro"},k=3',
      f'baseline={roots / "baseline"}',
    ],
  )['rows']
  first = _evaluated(config, roots, 'retro')
  wanted = {
    'on': first,
    'other data': _evaluated(config, roots, 'retro', data=str(roots / 'two')),
    'off': _evaluated(config, roots, 'retro', 'off', k=0),
    'more': _evaluated(config, roots, 'retro', k=3),
    'baseline': _evaluated(config, roots, 'baseline', 'off', k=0),
  }
  assert [row['name'] for row in rows] == list(wanted)
  assert len({row['bits_per_byte'] for row in rows}) == len(rows)
  for row, want in zip(rows, wanted.values(), strict=True):
    assert row['bits_per_byte'] == pytest.approx(want.bits_per_byte, rel=1e-9)
    assert row['minus'].keys() == wanted.keys() - {row['name']}
    for name, less in row['minus'].items():
      assert less.pop('of_seeds') == pytest.approx([less['mean']])
      interval = bootstrap.bootstrap(
        want.nats - wanted[name].nats, math.log(2) * want.num_bytes
      )
      assert less == pytest.approx(dataclasses.asdict(interval))
  assert json.loads((tmp_path / compare.FILE).read_text())
  with np.load(tmp_path / 'compare.npz') as arrays:
    assert {*arrays} == {*wanted, 'bytes'}
    for name, want in wanted.items():
      np.testing.assert_allclose(arrays[name], [want.nats], rtol=1e-6)
    np.testing.assert_array_equal(arrays['bytes'], first.num_bytes)
  assert 'minus first' in capsys.readouterr().out


def test_seeds_of_a_row_count_with_their_mean(roots, config, tmp_path):
  off, on = compare.compare(
    config,
    str(tmp_path),
    tiny_retro.evaluate_one(),
    [
      f'{name}={roots / run}{option}'
      for name, option in (('off', ',retrieval=off'), ('on', ''))
      for run in ('retro', 'seed')
    ],
  )['rows']
  found = {
    name: [
      _evaluated(config, roots, run, name, k=k) for run in ('retro', 'seed')
    ]
    for name, k in (('off', 0), ('on', 1))
  }
  each = [
    a.bits_per_byte - b.bits_per_byte
    for a, b in zip(found['on'], found['off'], strict=True)
  ]
  assert each[0] != each[1]
  assert on['minus']['off']['of_seeds'] == pytest.approx(each)
  assert on['minus']['off']['mean'] == pytest.approx(np.mean(each))
  assert off['bits_per_byte_of_seeds'] == [
    x.bits_per_byte for x in found['off']
  ]


@pytest.mark.parametrize(
  'value, said',
  [
    ('one', "'': expected a folder"),
    ('one={retro},k=0', 'k=0: expected'),
    ('one={retro},retrieval=maybe', "retrieval='maybe': expected"),
    ('one={retro},part=half', "part='half': expected"),
    ('one={retro},k=2,rank=2', 'k or rank'),
    ('one={retro},rank=2,retrieval=off', 'reads none'),
    ('one={baseline},k=2', 'a baseline reads no neighbors'),
  ],
)
def test_bad_rows_are_refused(roots, config, tmp_path, value, said):
  value = value.format(retro=roots / 'retro', baseline=roots / 'baseline')
  with pytest.raises(ValueError, match=said) as error:
    compare.compare(config, str(tmp_path), tiny_retro.evaluate_one(), [value])
  assert '\n' not in str(error.value)
