# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The sweeps of a tiny model against its plain evaluation, and overlaps."""

import json
import types

import numpy as np
import pytest

from experiments.retro import (
  compare,
  evaluate as retro_evaluate,
  sweep as retro_sweep,
)
from retrieval.index import neighbors as neighbors_lib, sources
from retrieval.store import store_writer
from retro_jax.data import folder as retro_data
from tests.experiments.retro import tiny_trained
from tests.retro_jax.data import tiny_data


class Folder(retro_data.DataFolder):
  """A data folder without an index."""

  @property
  def index(self):
    searcher = types.SimpleNamespace(metric='squared_l2')
    return types.SimpleNamespace(searcher=searcher)


@pytest.fixture(scope='module')
def root(tmp_path_factory):
  root = tiny_data.make(tmp_path_factory.mktemp('data'))
  data, rng = Folder(root), np.random.default_rng(0)
  for split in ('train', 'valid'):
    chunks = data.chunks(split)
    rows = chunks.store.rows('document')
    fields = {'chunks': chunks.fingerprint}
    writer = store_writer.StoreWriter(
      data.path(f'vectors-{split}'), 'vectors', fields
    )
    for i, n in enumerate(rows):
      vectors = rng.standard_normal((n, 8), np.float32)
      writer.write(i, {'vectors': vectors})
    writer.publish(len(rows))
  return root


@pytest.fixture
def config(root, monkeypatch):
  found = tiny_trained.load_from(root, monkeypatch, Folder)['retro'].config
  found.evaluate.max_documents = 4
  found.evaluate.shuffled = False
  return found


def test_numbers_of_neighbors(config, tmp_path, capsys):
  config.sweep.num_neighbors = (0, 1, 3)
  workdir = tmp_path / 'retro'
  rows = retro_sweep.run(config, str(workdir), 'neighbors')['neighbors']
  config.evaluate.num_neighbors = (1, 3)
  retro_evaluate.run(config, str(workdir))
  found = json.loads((workdir / 'evaluation.json').read_text())['rows']
  want = {row['num_neighbors']: row['bits_per_byte'] for row in found}
  assert {r['num_neighbors']: r['bits_per_byte'] for r in rows} == want
  assert 'k = 3' in capsys.readouterr().out
  assert (workdir / 'sweep_neighbors.png').stat().st_size > 5000
  config.sweep.num_neighbors = (0, 100)
  with pytest.raises(ValueError, match=r'100\).*0 to 3.*neighbors.stored=N'):
    retro_sweep.run(config, str(workdir), 'neighbors')


def test_ranks_of_one_neighbor(config, tmp_path):
  config.sweep.num_neighbors = (1, 3)
  workdir = tmp_path / 'retro'
  rows = retro_sweep.run(config, str(workdir), 'ranks')['ranks']
  assert [row['name'] for row in rows] == ['rank 1', 'rank 3', 'none']
  assert len({row['bits_per_byte'] for row in rows}) == 3
  config.evaluate.num_neighbors = (1,)
  retro_evaluate.run(config, str(workdir))
  best = json.loads((workdir / 'evaluation.json').read_text())['rows'][0]
  assert best['bits_per_byte'] == rows[0]['bits_per_byte']


def test_parts_of_a_neighbor_goes_on_where_it_was_killed(
  config, tmp_path, monkeypatch
):
  measure, names = retro_evaluate.measure, []

  def watched(*args):
    if len(names) == 2:
      names.append('killed')
      raise KeyboardInterrupt
    names.append(args[-1])
    return measure(*args)

  monkeypatch.setattr(retro_evaluate, 'measure', watched)
  with pytest.raises(KeyboardInterrupt):
    retro_sweep.run(config, str(tmp_path / 'retro'), 'parts')
  rows = retro_sweep.run(config, str(tmp_path / 'retro'), 'parts')['parts']
  assert names == ['N', 'F', 'killed', '[N, F]', 'none']
  assert [row['name'] for row in rows] == ['N', 'F', '[N, F]', 'none']
  assert len({row['bits_per_byte'] for row in rows}) == 4
  config.evaluate.max_documents = 3  # another measurement
  retro_sweep.run(config, str(tmp_path / 'retro'), 'parts')
  assert len(names) == 9


def test_rows_of_a_comparison_are_those_of_the_sweeps(config, tmp_path):
  workdir = tmp_path / 'retro'
  workdir.mkdir()
  config.sweep.shares = (1.0, 0.4)
  swept = retro_sweep.run(config, str(workdir), 'datastore', 'parts')
  want = {
    row['name']: row['bits_per_byte']
    for row in (*swept['datastore'], *swept['parts'])
  }
  options = {
    '100 %': 'share=1',
    '40 %': 'share=.4',
    'N': 'part=neighbor',
    'F': 'part=continuation',
    '[N, F]': 'part=full',
    'none': 'retrieval=off',
  }
  rows = [f'{name}={workdir},{x}' for name, x in options.items()]
  found = compare.run(config, str(workdir), rows)['rows']
  assert {row['name']: row['bits_per_byte'] for row in found} == want
  assert len(set(want.values())) == len(want)


def test_sources_of_neighbors(root, config, tmp_path, monkeypatch, capsys):
  """The sources that are there, each with its own neighbors."""
  data = Folder(root, 'random')
  neighbors_lib.build_neighbor_store(
    data.neighbors_path('valid'),
    data.chunks('valid'),
    data.chunks('train'),
    sources.Random(data.chunks('train')),
    k=3,
  )
  config.evaluate.num_neighbors = (2,)
  rows = retro_sweep.run(config, str(tmp_path / 'retro'), 'sources')['sources']
  assert [row['name'] for row in rows] == ['dense', 'random', 'none']
  for row in rows[:2]:
    config.evaluate.source = row['name']
    retro_evaluate.run(config, str(tmp_path / 'retro'))
    found = json.loads((tmp_path / 'retro' / 'evaluation.json').read_text())
    assert found['rows'][0]['bits_per_byte'] == row['bits_per_byte']
    assert found['settings']['source'] == row['name']
  assert len({row['bits_per_byte'] for row in rows}) == 3
  assert 'random' in capsys.readouterr().out


def test_parts_of_the_datastore(config, tmp_path, capsys):
  config.sweep.shares = (1.0, 0.3)
  workdir = tmp_path / 'retro'
  whole, part = retro_sweep.run(config, str(workdir), 'datastore')['datastore']
  assert 0 < part['datastore_tokens'] < whole['datastore_tokens']
  assert part['bits_per_byte'] != whole['bits_per_byte']
  assert part['share'] == 0.3 and '30 %' in capsys.readouterr().out
  content = json.loads((workdir / 'sweep_datastore.json').read_text())
  assert content['rows'] == [whole, part]
  before = (workdir / 'sweep_datastore.json').read_bytes()
  other = config.copy_and_resolve_references()
  other.sweep.shares = (0.4, 1e-9)
  with pytest.raises(ValueError, match='leaves no document'):
    retro_sweep.run(other, str(workdir), 'datastore')
  assert (workdir / 'sweep_datastore.json').read_bytes() == before
  # What was measured before stays beside what is measured now.
  other.sweep.shares = (0.5,)
  (half,) = retro_sweep.run(other, str(workdir), 'datastore')['datastore']
  content = json.loads((workdir / 'sweep_datastore.json').read_text())
  assert content['rows'] == [half, whole, part]


def test_parts_of_the_datastore_of_another_k_or_seed(root, config, tmp_path):
  trained = tiny_trained.trained(root, folder=Folder)
  config.sweep.shares = (0.5,)
  found = []
  for k, seed in ((1, 0), (2, 0), (2, 3), (1, 0)):
    config.evaluate.num_neighbors, config.seed = (k,), seed
    (setting,) = retro_sweep.by_datastore(trained, config, tmp_path)
    neighbors = setting.reader.stores.neighbors
    assert (
      neighbors.num_neighbors == k and neighbors.store.fields['seed'] == seed
    )
    found.append(neighbors.path)
  assert len(set(found)) == 3 and found[0] == found[3]


def test_no_number_of_neighbors_is_named(config, tmp_path):
  config.evaluate.num_neighbors = ()
  for name in ('datastore', 'parts'):
    with pytest.raises(
      ValueError, match='num_neighbors .*one or more'
    ) as error:
      retro_sweep.run(config, str(tmp_path / 'retro'), name)
    assert '\n' not in str(error.value)


def test_a_baseline_has_nothing_to_sweep(config, tmp_path):
  with pytest.raises(ValueError, match='this is a baseline'):
    retro_sweep.run(config, str(tmp_path / 'baseline'), 'parts')


def test_overlap_is_a_stride(config):
  settings = config.evaluate
  assert retro_evaluate.stride_chunks(settings, 48) == 0
  for overlap, stride in ((0.875, 6), (0.75, 12), (0.0, 48)):
    settings.overlap = overlap
    assert retro_evaluate.stride_chunks(settings, 48) == stride
  for overlap in (1.0, -0.5, 0.9):
    settings.overlap = overlap
    with pytest.raises(ValueError, match='whole number of the 48 chunks'):
      retro_evaluate.stride_chunks(settings, 48)
  settings.overlap, settings.stride_chunks = 0.5, 2
  with pytest.raises(ValueError, match='expected one of them'):
    retro_evaluate.stride_chunks(settings, 48)
