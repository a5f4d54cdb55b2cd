# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The sweeps of a tiny model against its plain evaluation, and overlaps."""

import dataclasses
import json

import numpy as np
import pytest

from experiments import sweep as retro_sweep
from experiments.retro import compare, evaluate as retro_evaluate
from retrieval.index import neighbors as neighbors_lib
from retrieval.search import retriever as retriever_lib
from retrieval.store import store_writer
from tests.experiments.retro import tiny_config, tiny_retro
from tests.retro_jax.data import tiny_data


@pytest.fixture(scope='module')
def root(tmp_path_factory):
  root = tiny_data.make(tmp_path_factory.mktemp('data'))
  data, rng = tiny_retro.Folder(root), np.random.default_rng(0)
  for split in ('train', 'valid'):
    chunks = data.chunks(split)
    rows = chunks.store.rows('document')
    fields = {'passages': chunks.fingerprint}
    writer = store_writer.StoreWriter(
      data.path(f'vectors-{split}'), 'vectors', fields
    )
    for i, n in enumerate(rows):
      vectors = rng.standard_normal((n, 8), np.float32)
      writer.write(i, {'vectors': vectors})
    writer.publish(len(rows))
  return root


@pytest.fixture(autouse=True)
def runs(root, monkeypatch):
  tiny_retro.load_from(root, monkeypatch)


def _evaluate(**settings):
  settings = {'shuffled': False, 'max_documents': 4} | settings
  return dataclasses.replace(tiny_retro.evaluate_one(), **settings)


def _sweep(workdir, *names, run='retro', **settings):
  sweep = {k: settings.pop(k) for k in ('shares', 'ks') if k in settings}
  if 'ks' in sweep:
    sweep['num_neighbors'] = sweep.pop('ks')
  evaluate = _evaluate(sweep=retro_evaluate.Sweep(**sweep), **settings)
  return retro_sweep.run(tiny_config.of(), str(workdir / run), evaluate, names)


def _evaluated(workdir, **settings):
  """The rows of the plain evaluation."""
  retro_evaluate.evaluate(
    tiny_config.of(), str(workdir / 'retro'), _evaluate(**settings)
  )
  path = workdir / 'retro' / 'evaluation.json'
  return json.loads(path.read_text())['rows']


def test_numbers_of_neighbors(tmp_path, capsys):
  rows = _sweep(tmp_path, 'neighbors', ks=(0, 1, 3))['neighbors']
  found = _evaluated(tmp_path, num_neighbors=(1, 3))
  want = {row['num_neighbors']: row['bits_per_byte'] for row in found}
  assert {r['num_neighbors']: r['bits_per_byte'] for r in rows} == want
  assert 'k = 3' in capsys.readouterr().out
  first, *others = rows
  assert first['minus_first'] == {}
  for row in others:
    found = row['minus_first']
    less = row['bits_per_byte'] - first['bits_per_byte']
    assert found['mean'] == pytest.approx(less, abs=1e-9)
    assert found['low'] <= found['mean'] <= found['high']
    assert found['low'] < found['high']
  picture = tmp_path / 'retro' / 'sweep_neighbors.png'
  assert picture.stat().st_size > 5000


def test_parts_of_a_neighbor_goes_on_where_it_was_killed(tmp_path, monkeypatch):
  measure, names = retro_evaluate.measure, []

  def watched(*args):
    if len(names) == 2:
      names.append('killed')
      raise KeyboardInterrupt
    names.append(args[-2])
    return measure(*args)

  monkeypatch.setattr(retro_evaluate, 'measure', watched)
  with pytest.raises(KeyboardInterrupt):
    _sweep(tmp_path, 'parts')
  rows = _sweep(tmp_path, 'parts')['parts']
  assert names == ['N', 'F', 'killed', '[N, F]', 'none']
  assert [row['name'] for row in rows] == ['N', 'F', '[N, F]', 'none']
  assert len({row['bits_per_byte'] for row in rows}) == 4
  _sweep(tmp_path, 'parts', max_documents=3)  # another measurement
  assert len(names) == 9


def test_rows_of_a_comparison_are_those_of_the_sweeps(tmp_path):
  workdir = tmp_path / 'retro'
  workdir.mkdir()
  kinds = 'datastore', 'parts', 'ranks'
  swept = _sweep(tmp_path, *kinds, shares=(1.0, 0.4), ks=(2, 3))
  want = {
    row['name']: row['bits_per_byte'] for kind in kinds for row in swept[kind]
  }
  options = {
    '100 %': 'share=1',
    '40 %': 'share=.4',
    'N': 'part=neighbor',
    'F': 'part=continuation',
    '[N, F]': 'part=full',
    'none': 'retrieval=off',
    'rank 2': 'rank=2',
    'rank 3': 'rank=3',
  }
  rows = [f'{name}={workdir},{x}' for name, x in options.items()]
  found = compare.compare(tiny_config.of(), str(workdir), _evaluate(), rows)
  assert {x['name']: x['bits_per_byte'] for x in found['rows']} == want
  assert len(set(want.values())) == len(want)


def test_sources_of_neighbors(root, tmp_path):
  """The sources that are there, each with its own neighbors."""
  data = tiny_retro.Folder(root, 'random')
  neighbors_lib.build_neighbor_store(
    data.neighbors_path('valid'),
    data.chunks('valid'),
    data.chunks('train'),
    retriever_lib.Random(data.chunks('train'), 0),
    k=3,
  )
  rows = _sweep(tmp_path, 'sources', num_neighbors=(2,))['sources']
  assert [row['name'] for row in rows] == ['dense', 'random', 'none']
  for row in rows[:2]:
    found = _evaluated(tmp_path, num_neighbors=(2,), source=row['name'])
    assert found[0]['bits_per_byte'] == row['bits_per_byte']
  assert len({row['bits_per_byte'] for row in rows}) == 3


def test_parts_of_the_datastore(tmp_path):
  file = tmp_path / 'retro' / 'sweep_datastore.json'
  whole, part = _sweep(tmp_path, 'datastore', shares=(1.0, 0.3))['datastore']
  assert 0 < part['datastore_tokens'] < whole['datastore_tokens']
  assert part['bits_per_byte'] != whole['bits_per_byte']
  assert part['share'] == 0.3
  assert json.loads(file.read_text())['rows'] == [whole, part]
  # What was measured before stays beside what is measured now.
  (half,) = _sweep(tmp_path, 'datastore', shares=(0.5,))['datastore']
  assert json.loads(file.read_text())['rows'] == [half, whole, part]


def test_a_baseline_has_nothing_to_sweep(tmp_path):
  with pytest.raises(ValueError, match='this is a baseline'):
    _sweep(tmp_path, 'parts', run='baseline')
