# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The arena trains and reads each arm by the ordinary commands, once, and counts costs."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest

from experiments import arena
from experiments.engine import configs, program
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
  indices = retro_data.DataFolder(folder).datastore.text_indices
  indices(tiny_config.tiny()).words('bm25')
  (folder / 'sparse-bm25-other').mkdir()
  (folder / 'sparse-bm25-other/words').write_bytes(b'x' * 1000)
  return folder


@pytest.fixture(scope='module')
def run(data, tmp_path_factory):
  """A whole arena: its folder, config, values and costs."""
  folder = tmp_path_factory.mktemp('run')
  config = _config(data_dir=str(data))
  arena.arena(config, str(folder))
  content = json.loads((folder / 'corpus_bytes.json').read_text())
  return folder, config, _values(folder), content


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
  size = sum(x.nbytes for x in jax.tree.leaves(trained.params))
  assert cost['baseline']['bytes'] == cost['baseline']['weights'] == size
  (words,) = (
    x for x in data.glob('sparse-bm25-*') if x.name != 'sparse-bm25-other'
  )
  stores = data / 'tokens', data / 'chunks-train', words
  memory = [reached.files_bytes(x) for x in stores]
  assert cost['copier']['bytes'] == size + sum(memory) and all(memory)
  keys = reached.files_bytes(folder / 'seed_0/knn_lm/knn_lm')
  assert cost['knn_lm']['memory'] == keys > 0
  built = arena.Runs(config, str(folder)).build(
    arena.arm_of(config, 'baseline'), 0
  )[0]
  of_data = retro_data.DataFolder(data)
  step = retro_task.make_task(built, of_data).flops_per_step
  assert cost['baseline']['flops'] == pytest.approx(4 * step)
  assert cost['copier']['flops'] == cost['baseline']['flops']
  # Windows of four chunks move by two: most chunks are read twice.
  counts = windows.find_documents(of_data.chunks('train')).count.tolist()
  assert built.sequence_chunks == 4 and max(counts) > 4
  read = sum(min(n - i, 4) for n in counts for i in range(0, max(n - 2, 1), 2))
  forward = step / 3 / (built.batch_size * 4)  # of a chunk
  flops = 3 * step + read * forward
  assert cost['knn_lm']['flops'] == pytest.approx(flops)
  of_step = _timed(folder, 'baseline')
  assert cost['baseline']['seconds'] == pytest.approx(4 * of_step) and of_step
  made = json.loads((folder / 'seed_0/knn_lm/made.json').read_text())['seconds']
  of_step = _timed(folder, '_few')
  assert cost['knn_lm']['seconds'] == pytest.approx(3 * of_step + made)
  assert made > 0 and cost['knn_lm']['steps'] == 3


def _timed(folder, name):
  return json.loads((folder / f'timed/{name}.json').read_text())['seconds']


def _values(folder):
  with np.load(folder / 'corpus_bytes.npz') as arrays:
    return dict(arrays)


@pytest.mark.slow
def test_it_goes_on_where_it_was_killed(run, tmp_path):
  folder, config, values, _ = run
  shutil.copytree(folder, tmp_path / 'run')
  metrics = tmp_path / 'run/seed_0/baseline/metrics.jsonl'
  before = metrics.read_bytes()
  for name in ('copier/test.npz', 'knn_lm/test.npz', 'knn_lm/made.json'):
    (tmp_path / 'run/seed_0' / name).unlink()
  (tmp_path / 'run/corpus_bytes.npz').unlink()
  arena.arena(config, str(tmp_path / 'run'))
  again = _values(tmp_path / 'run')
  for name, x in values.items():
    np.testing.assert_array_equal(again[name], x)
  assert metrics.read_bytes() == before
  for name, texts in (
    ('baseline', (BASELINE, 'num_steps=2')),
    ('copier', (*ARMS['copier'], 'evaluate.num_neighbors=3')),
  ):
    changed = dataclasses.replace(config, arms=ARMS | {name: texts})
    with pytest.raises(ValueError, match=rf'arms\.{name}'):
      arena.arena(changed, str(tmp_path / 'run'))


@pytest.mark.slow
def test_seeds_of_several_processes_are_reported_together(
  run, tmp_path, monkeypatch
):
  folder, config, values, content = run
  shutil.copytree(folder, tmp_path / 'run')
  runs = tmp_path / 'run'
  for seed in (1, 2):
    shutil.copytree(runs / 'seed_0', runs / f'seed_{seed}')
  (runs / 'seed_2/copier/test.npz').unlink()  # is not finished
  shutil.copytree(runs / 'seed_0', runs / 'seed_0_old')  # is no seed
  locked, held, make = [], [], arena.Runs.make

  def watched(self, arm, seed):
    locked.extend(x.parent.name for x in runs.glob('seed_*/.writer-arena.lock'))
    held.append((runs / '.report.lock').exists())
    make(self, arm, seed)

  monkeypatch.setattr(arena.Runs, 'make', watched)
  monkeypatch.setattr(arena.Runs, 'call', None)  # nothing is computed again
  arena.arena(dataclasses.replace(config, seed=1), str(runs))
  assert {*locked} == {'seed_1'}
  # Its own arms first, then those of the report, which others wait for.
  assert held == sorted(held) and {*held} == {False, True}
  again = _values(runs)
  for name in ('test/baseline', 'test/copier', 'test/knn_lm'):
    np.testing.assert_array_equal(again[name], np.repeat(values[name], 2, 0))
  report = json.loads((runs / 'corpus_bytes.json').read_text())
  assert report['seeds'] == [0, 1] and content['seeds'] == [0]
  for name, arm in report['arms'].items():
    assert arm['costs'] == 2 * content['arms'][name]['costs']


@pytest.mark.parametrize('equal', ['flops', 'seconds'])
def test_a_budget_sets_the_steps(equal, data, tmp_path, monkeypatch):
  timed, trained = [], []

  def call(self, arm, seed, verb, *_):
    if verb == 'train':
      trained.append((arm.name, self.build(arm, seed)[0].num_steps))

  monkeypatch.setattr(program, 'time_step', lambda *x: timed.append(x) or 0.25)
  monkeypatch.setattr(arena.Runs, 'call', call)

  def make(name, budget):
    config = _config(data_dir=str(data), equal=equal, budget=budget)
    runs = arena.Runs(config, str(tmp_path))
    runs.make(runs.arms[name], 0)
    return runs

  runs = make('knn_lm', 1.0)  # _few has steps of its own
  step = runs._step_flops(runs.arms['baseline']) if equal == 'flops' else 0.25
  make('copier', 7.5 * step)
  make('baseline', 7.5 * step)
  assert trained == [('_few', 3), ('baseline', 7)]
  assert len(timed) == (equal == 'seconds')  # once a workdir
  with pytest.raises(ValueError, match='num_steps'):
    make('baseline', 9 * step)


def test_what_is_made_of_other_texts_is_not_taken(data, tmp_path, monkeypatch):
  monkeypatch.setattr(program, 'time_step', lambda *x: timed.append(x) or 0.25)
  monkeypatch.setattr(arena.Runs, 'call', lambda *_, **__: None)
  timed = []

  def make(few):
    config = _config(data_dir=str(data), arms=ARMS | {'_few': (BASELINE, *few)})
    runs = arena.Runs(config, str(tmp_path))
    runs._step_seconds(runs.arms['_few'])
    runs.make(runs.arms['knn_lm'], 0)

  make(['num_steps=3'])
  make(['num_steps=3'])
  assert len(timed) == 1
  shutil.rmtree(tmp_path / 'seed_0/_few')
  with pytest.raises(ValueError, match=r'arms\.knn_lm'):
    make(['model.d_ff=8'])
  assert len(timed) == 2


def test_arms_of_other_documents_are_not_compared(data, tmp_path, monkeypatch):
  def nats(self, arm, *_):
    sizes = np.arange(3) + (arm.name == 'copier')
    return {'nats': np.ones(3), 'bytes': sizes}

  monkeypatch.setattr(arena.Runs, 'nats', nats)
  runs = arena.Runs(_config(data_dir=str(data)), str(tmp_path))
  monkeypatch.setattr(arena.Runs, 'finished', lambda _: [0])
  monkeypatch.setattr(arena.Runs, 'make', lambda *_: None)
  with pytest.raises(ValueError, match=r'arms\.copier'):
    runs.report()


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
    ('@new',),
    (BASELINE, 'num_steps'),
    ('knn_lm_small:test', 'knn_lm.model_workdir=@nobody'),
    ('knn_lm_small:test', 'knn_lm.model_workdir=@new'),
  ],
)
def test_what_is_no_arm_is_named(texts):
  with pytest.raises(ValueError, match=r'arms\.'):
    _config(arms=ARMS | {'new': texts})
  for other in ('plain', '_few'):
    with pytest.raises(ValueError, match=f'{other}'):
      _config(against=other)


def test_an_embedder_is_no_free_memory(data, tmp_path):
  fields = ('neighbors.source=dense', *SIZES)
  with pytest.raises(ValueError, match='source'):
    arena.Runs(_config(data_dir=str(data), fields=fields), str(tmp_path))
  fields = ('neighbors.source=tfidf', *SIZES)
  with pytest.raises(FileNotFoundError, match='tfidf'):
    arena.Runs(_config(data_dir=str(data), fields=fields), str(tmp_path))


@pytest.mark.parametrize(
  'arg', ['bytes', 'flops_simple', 'bytes_simple', 'test']
)
def test_arms_of_the_config_are_built(arg, data, tmp_path):
  path = f'{configs.FOLDER}/retro_arena_quickstart.py:{arg}'
  overrides = [('data_dir', str(data)), ('splits', 'test')]
  [config] = configs.complete(configs.load(path), overrides, arena.Config)
  runs = arena.Runs(config, str(tmp_path))
  for arm in runs.arms.values():
    verb = 'prepare' if arm.base else 'train'
    assert runs.build(arm, 3, verb)[0].seed == 3
    assert runs.build(arm, 3, 'evaluate', split='test')[1].split == 'test'
