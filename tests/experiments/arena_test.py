# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The arena trains and reads each arm by the ordinary commands, once, and counts costs."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from experiments import arena
from experiments.engine import configs
from experiments.knn_lm import evaluate as knn_lm_evaluate
from experiments.retro import evaluate as retro_evaluate, task as retro_task
from retro_jax.data import folder as retro_data, windows
from retro_jax.evaluation import leakage, reached
from retro_jax.trained import language_model, loading
from tests.experiments.retro import tiny_config
from tests.retro_jax.data import tiny_data

SIZES = (f'model.chunk_length={tiny_data.M}', 'model.neighbor_length=7')
BASELINE = 'retro_pretrain_quickstart:baseline_test'
KNN_LM = (
  'knn_lm_small:test',
  'knn_lm.model_workdir=@_few',
  'knn_lm.tune_split=valid',
  'knn_lm.index.searcher=exact',
)
ARMS = {
  'baseline': (BASELINE,),
  'copier': ('@baseline', 'evaluate.evaluators=copying'),
  'knn_lm': KNN_LM,
  '_few': (BASELINE, 'num_steps=3'),
}


def _config(**changes):
  fields = {'neighbors.source=bm25', 'neighbors.stored=3', *SIZES}
  values = {'arms': ARMS, 'fields': tuple(sorted(fields)), 'num_seeds': 1}
  return arena.Config(**values | {'splits': ('test',)} | changes)


@pytest.fixture(scope='module')
def data(root, tmp_path_factory):
  """The tiny data with the same neighbors as those of BM25."""
  folder = tmp_path_factory.mktemp('arena') / 'data'
  shutil.copytree(root, folder)
  for split in ('train', 'valid', 'test'):
    shutil.copytree(
      folder / f'neighbors-{split}', folder / f'neighbors_bm25-{split}'
    )
  (folder / 'sparse-bm25-0').mkdir()
  (folder / 'sparse-bm25-0/words').write_bytes(b'x' * 1000)
  return folder


@pytest.fixture(scope='module')
def run(data, tmp_path_factory):
  """A whole arena: its folder, config, values and costs."""
  folder = tmp_path_factory.mktemp('run')
  config = _config(data_dir=str(data))
  arena.arena(config, str(folder))
  with np.load(folder / 'corpus_bytes.npz') as arrays:
    values = dict(arrays)
  content = json.loads((folder / 'corpus_bytes.json').read_text())
  return folder, config, values, content


@pytest.mark.slow
def test_values_are_those_of_the_commands(run, data):
  folder, _, values, content = run
  assert {*values} == {
    'test/overlap',
    'test/bytes',
    *(f'test/{x}' for x in ('baseline', 'copier', 'knn_lm')),
  }
  assert [*content['arms']] == ['baseline', 'copier', 'knn_lm']
  assert all('sums to 1' not in x['failed'] for x in content['arms'].values())
  trained = language_model.load(folder / 'seed_0/baseline', str(data))
  changes = {'arg': 'baseline_test', 'split': 'test', 'max_documents': 0}
  evaluate = tiny_config.section('evaluate', **changes)
  config = tiny_config.tiny(arg='baseline_test')
  result = retro_evaluate.evaluate_trained(trained, config, evaluate)
  expected = result['baseline']
  np.testing.assert_allclose(values['test/baseline'][0], expected.nats)
  np.testing.assert_array_equal(values['test/bytes'], expected.num_bytes)
  # Weights of the copier and of the kNN-LM are tuned on other documents.
  assert values['test/copier'][0].sum() != expected.nats.sum()
  mixed = knn_lm_evaluate.load(folder / 'seed_0/knn_lm')
  texts = [
    mixed.data.tokenizer.decode(mixed.data.tokens.document(int(i)))
    for i in windows.find_documents(mixed.data.chunks('test')).index
  ]
  scored = mixed.loglikelihood([''] * len(texts), texts)
  np.testing.assert_allclose(
    [x.nats for x in scored], values['test/knn_lm'][0], rtol=1e-4
  )


@pytest.mark.slow
def test_overlap_is_the_mean_of_a_documents_chunks(run, data):
  trained = language_model.load(run[0] / 'seed_0/baseline', str(data))
  reader = loading.chunk_reader(trained.config, trained.data, 'test', 3)
  documents = windows.find_documents(reader.stores.chunks)
  ids, document = windows.chunk_ids(documents)
  each = leakage.overlaps(reader, ids)
  expected = [each[document == i].mean() for i in range(len(documents.index))]
  np.testing.assert_allclose(run[2]['test/overlap'], expected)


@pytest.mark.slow
def test_costs_are_bytes_flops_and_seconds(run, data):
  folder, config, _, content = run
  cost = {name: x['costs'][0] for name, x in content['arms'].items()}
  trained = language_model.load(folder / 'seed_0/baseline', str(data))
  size = sum(x.nbytes for x in _leaves(trained.params))
  assert cost['baseline']['bytes'] == cost['baseline']['weights'] == size
  stores = 'tokens', 'chunks-train', 'sparse-bm25-0'
  memory = sum(reached.files_bytes(data / x) for x in stores)
  assert cost['copier']['bytes'] == size + memory > size + 1000
  keys = reached.files_bytes(folder / 'seed_0/knn_lm/knn_lm')
  assert cost['knn_lm']['memory'] == keys > 0
  built = arena.Runs(config, str(folder)).build(
    arena.arm_of(config, 'baseline'), 0
  )[0]
  step = retro_task.make_task(built, retro_data.DataFolder(data)).flops_per_step
  assert cost['baseline']['flops'] == pytest.approx(4 * step)
  assert cost['copier']['flops'] == cost['baseline']['flops']
  assert cost['knn_lm']['flops'] > 3 * step and cost['knn_lm']['steps'] == 3
  assert cost['baseline']['seconds'] > 0


def _leaves(tree):
  if isinstance(tree, dict):
    return [x for part in tree.values() for x in _leaves(part)]
  return [tree]


@pytest.mark.slow
def test_it_goes_on_where_it_was_killed(run, tmp_path):
  folder, config, values, _ = run
  shutil.copytree(folder, tmp_path / 'run')
  before = (tmp_path / 'run/seed_0/baseline/metrics.jsonl').read_bytes()
  for name in ('seed_0/copier/test.npz', 'corpus_bytes.npz'):
    (tmp_path / 'run' / name).unlink()
  arena.arena(config, str(tmp_path / 'run'))
  with np.load(tmp_path / 'run/corpus_bytes.npz') as again:
    for name, x in values.items():
      np.testing.assert_array_equal(again[name], x)
  metrics = tmp_path / 'run/seed_0/baseline/metrics.jsonl'
  assert metrics.read_bytes() == before
  arms = ARMS | {'baseline': (BASELINE, 'num_steps=2')}
  changed = dataclasses.replace(config, arms=arms)
  with pytest.raises(ValueError, match=r'arms\.baseline'):
    arena.arena(changed, str(tmp_path / 'run'))


def test_a_budget_of_flops_sets_the_steps(data, tmp_path):
  config = _config(data_dir=str(data), equal='flops')
  runs = arena.Runs(config, str(tmp_path))
  arm = arena.arm_of(config, 'baseline')
  step = runs._step_flops(arm)
  config = dataclasses.replace(config, budget=7.5 * step)
  runs = arena.Runs(config, str(tmp_path))
  within = runs._within_budget(arm)
  assert runs.build(within, 0)[0].num_steps == 7


@pytest.mark.slow
def test_a_budget_of_seconds_sets_the_steps(data, tmp_path):
  config = _config(data_dir=str(data), equal='seconds', budget=2.0)
  runs = arena.Runs(config, str(tmp_path))
  arm = arena.arm_of(config, 'baseline')
  steps = runs.build(runs._within_budget(arm), 0)[0].num_steps
  assert steps == max(1, int(2.0 / runs._step_seconds(arm)))


def test_arms_are_read():
  config = _config()
  copier = arena.arm_of(config, 'copier')
  assert (copier.model, copier.file, copier.copies) == (
    'baseline',
    BASELINE,
    True,
  )
  knn_lm = arena.arm_of(config, 'knn_lm')
  assert knn_lm.base == '_few' and knn_lm.fields['knn_lm.tune_split'] == 'valid'


@pytest.mark.parametrize(
  'texts',
  [
    (),
    ('no_such_config',),
    ('@nobody',),
    (BASELINE, 'num_steps'),
    ('knn_lm_small:test', 'knn_lm.model_workdir=@nobody'),
  ],
)
def test_what_is_no_arm_is_named(texts):
  with pytest.raises(ValueError, match=r'arms\.'):
    _config(arms=ARMS | {'new': texts})


def test_the_baseline_is_an_arm():
  with pytest.raises(ValueError, match=r'arms\.plain'):
    _config(against='plain')


def test_an_embedder_is_no_free_memory(data, tmp_path):
  fields = ('neighbors.source=dense', *SIZES)
  config = _config(data_dir=str(data), fields=fields)
  runs = arena.Runs(config, str(tmp_path))
  built = runs.build(arena.arm_of(config, 'copier'), 0)[0]
  with pytest.raises(ValueError, match='source'):
    runs._size_of_neighbors(built)


@pytest.mark.parametrize('arg', ['bytes', 'flops', 'seconds', 'test'])
def test_arms_of_the_config_are_built(arg, data, tmp_path):
  path = f'{configs.FOLDER}/retro_arena_quickstart.py:{arg}'
  overrides = [('data_dir', str(data)), ('splits', 'test')]
  [config] = configs.complete(configs.load(path), overrides, arena.Config)
  runs = arena.Runs(config, str(tmp_path))
  for arm in runs.arms.values():
    verb = 'prepare' if arm.base else 'train'
    assert runs.build(arm, 3, verb)[0].seed == 3
    assert runs.build(arm, 3, 'evaluate', split='test')[1].split == 'test'
