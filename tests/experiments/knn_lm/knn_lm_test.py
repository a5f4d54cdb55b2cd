# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The commands of kNN-LM on a tiny model and data folder."""

import json
import shutil

import numpy as np
import pytest

from experiments.knn_lm import (
  evaluate as knn_lm_evaluate,
  mixed,
  prepare as knn_lm_prepare,
)
from experiments.retro import evaluate as retro_evaluate
from retrieval.index import key_values
from retro_jax.data import folder as retro_data, windows as windows_lib
from retro_jax.evaluation import knn_lm
from retro_jax.trained import language_model, loading
from tests.experiments.knn_lm import tiny_knn_lm
from tests.retrieval.store import tiny_stores


@pytest.fixture
def runs(root, monkeypatch):
  """Makes 'retro', 'baseline' and 'other' loadable, from `runs['root']`."""
  where = {'root': root}

  def load(workdir, data_dir='', **unused_placement):
    name = str(workdir).split('/')[-1]
    return tiny_knn_lm.trained(
      where['root'], name != 'retro', seed=int(name == 'other')
    )

  monkeypatch.setattr(language_model, 'load', load)
  monkeypatch.setattr(knn_lm_evaluate, 'TOKENS_PER_SHARD', 60)
  return where


def _build(config, workdir, stages='all'):
  prepare = knn_lm_prepare.Prepare(stages=stages)
  knn_lm_prepare.prepare(config, str(workdir), prepare)


def _evaluate(config, workdir, **fields):
  evaluate = tiny_knn_lm.evaluate(**fields)
  knn_lm_evaluate.evaluate(config, str(workdir), evaluate)


@pytest.fixture(scope='module')
def built(root, tmp_path_factory):
  """A datastore of the baseline, with its index."""
  folder = tmp_path_factory.mktemp('built')
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(
      language_model, 'load', lambda *_, **__: tiny_knn_lm.trained(root)
    )
    _build(tiny_knn_lm.config(), folder)
  return folder


@pytest.fixture
def workdir(built, tmp_path):
  shutil.copytree(built, tmp_path / 'baseline')
  return tmp_path / 'baseline'


def _read(workdir):
  found = json.loads((workdir / 'knn_lm.json').read_text())
  return found, {row['name']: row for row in found['rows']}


def test_the_datastore_is_every_training_token(root, built):
  folder = knn_lm_prepare.folder_of(built)
  pairs = key_values.KeyValueStore(folder / 'datastore')
  chunks = retro_data.DataFolder(root).chunks('train')
  documents = windows_lib.find_documents(chunks)
  want = [chunks.tokens.document(int(i))[1:] for i in documents.index]
  np.testing.assert_array_equal(pairs.values[:], np.concatenate(want))
  assert pairs.store.num_shards > 3
  assert pairs.keys.dtype == np.float16 and pairs.keys.shape[1] == 12
  assert isinstance(pairs.keys.shard(0), np.memmap)
  settings = tiny_knn_lm.config().knn_lm
  index = knn_lm_prepare.open_index(folder, pairs, settings)
  assert index.searcher.num_vectors == len(pairs)


def test_the_table_reports_what_was_not_tuned_on(root, runs, workdir, capsys):
  config = tiny_knn_lm.config(retro_workdir='retro')
  _evaluate(config, workdir)
  found, rows = _read(workdir)
  assert list(rows) == [
    'model alone',
    'kNN-LM',
    'kNN-LM, k=1',
    'kNN-LM, k=4',
    'kNN-LM, k=16',
    "kNN-LM, paper's",
    'RETRO, k=2',
    'RETRO off',
  ]
  number = len(
    windows_lib.find_documents(
      tiny_knn_lm.trained(root).data.chunks('valid')
    ).index
  )
  for row in rows.values():
    assert row['documents'] == number - len(found['tuned_on']) > 0
    assert row['tokens'] == rows['model alone']['tokens'] > 0
    if row['name'] != 'model alone':
      difference = row['bits_per_byte'] - rows['model alone']['bits_per_byte']
      assert row['minus_alone']['mean'] == pytest.approx(difference)
  papers = rows["kNN-LM, paper's"]
  assert (papers['lambda'], papers['alpha'], papers['k']) == (
    0.118,
    pytest.approx(0.00785),
    16,
  )
  # What is chosen serves the tuned documents best, and 0 is the model alone.
  best = min(found['sweep'], key=lambda x: x['tuned_on'])
  for name in ('k', 'temperature', 'lambda'):
    assert rows['kNN-LM'][name] == best[name]
  assert rows['kNN-LM']['bits_per_byte'] == pytest.approx(best['reported'])
  alone = {x['reported'] for x in found['sweep'] if x['lambda'] == 0}
  assert alone == {rows['model alone']['bits_per_byte']}
  assert len(found['sweep']) == 3 * 2 * 3
  shares = list(found['target_found'].values())
  assert shares == sorted(shares) and 0 < shares[0] < shares[-1] <= 1
  printed = capsys.readouterr().out
  assert not [name for name in rows if f' {name} ' not in printed], printed


def test_alone_equals_the_evaluation_and_rows_a_slow_search(
  root, runs, workdir
):
  """Everything reported, one setting, against all pairs of query and key."""
  setting = {'ks': (4,), 'temperatures': (10.0,), 'lambdas': (0.3,)}
  config = tiny_knn_lm.config(tune_share=0.0, **setting)
  _evaluate(config, workdir)
  _, rows = _read(workdir)
  (baseline,) = retro_evaluate.evaluate_trained(
    tiny_knn_lm.trained(root), config, tiny_knn_lm.evaluate()
  )
  baseline = baseline.evaluation.summary()
  for name in ('bits_per_byte', 'word_perplexity', 'documents', 'bytes'):
    assert rows['model alone'][name] == pytest.approx(baseline[name], rel=1e-6)
  pairs = key_values.KeyValueStore(
    knn_lm_prepare.folder_of(workdir) / 'datastore'
  )
  keys = np.asarray(pairs.keys[:], np.float64)
  trained = tiny_knn_lm.trained(root)
  reader = loading.chunk_reader(trained.config, trained.data, 'valid', 0)
  documents = windows_lib.find_documents(reader.stores.chunks)
  with knn_lm_prepare.features(trained, config, 8) as features:
    tokens = knn_lm.read_tokens(
      features, reader, documents, sequence_chunks=4, batch_size=8
    )
  total = 0.0
  for key, target, nats in zip(
    tokens.keys, tokens.targets, tokens.nats, strict=True
  ):
    distances = ((keys - key) ** 2).sum(1)
    near = np.argsort(distances, kind='stable')[:4]
    weights = np.exp(-distances[near] / 10)
    share = weights[pairs.values[near] == target].sum() / weights.sum()
    total -= np.log(0.3 * share + 0.7 * np.exp(-np.float64(nats)))
  assert rows['kNN-LM']['nats'] == pytest.approx(total, rel=1e-5)
  assert rows['kNN-LM']['nats'] != pytest.approx(baseline['nats'], rel=1e-3)
  model = mixed.load(workdir)
  numbers = documents.index.tolist()
  texts = [
    model.data.tokenizer.decode(model.data.tokens.document(i)) for i in numbers
  ]
  found = model.loglikelihood([''] * len(texts), texts)
  assert sum(x.nats for x in found) == pytest.approx(total, rel=1e-5)
  with pytest.raises(ValueError, match='draws no samples'):
    model.sample(texts)


def test_split_and_stride_hold_for_every_row(root, runs, workdir, tmp_path):
  data = tiny_knn_lm.add_evaluation_set(root, tmp_path / 'data', 0.07)
  assert data.splits == ['all', 'some', 'test', 'train', 'valid']
  runs['root'] = data.root
  config = tiny_knn_lm.config(
    **{'ks': (4,), 'temperatures': (10.0,), 'lambdas': (0.3,)},
    retro_workdir='retro',
    tune_share=0.0,
  )
  settings = {'split': 'some', 'stride_chunks': 1, 'num_neighbors': (1,)}
  _evaluate(config, workdir, **settings)
  found, rows = _read(workdir)
  some, valid = (
    windows_lib.find_documents(data.chunks(split))
    for split in ('some', 'valid')
  )
  assert 0 < len(some.index) < len(valid.index)
  assert some.count.max() > 4  # there are several windows
  assert {row['documents'] for row in rows.values()} == {len(some.index)}
  (baseline,) = retro_evaluate.evaluate_trained(
    tiny_knn_lm.trained(data.root), config, tiny_knn_lm.evaluate(**settings)
  )
  nats = baseline.evaluation.summary()['nats']
  assert rows['model alone']['nats'] == pytest.approx(nats, rel=1e-6)
  assert found['evaluate']['split'] == 'some'


def test_a_build_leaves_out_the_evaluation_set(root, runs, workdir, tmp_path):
  data = tiny_knn_lm.add_evaluation_set(root, tmp_path / 'data', 0.6)
  runs['root'] = data.root
  config = tiny_knn_lm.config(model_workdir='baseline', held_out='some')
  train, some = (
    windows_lib.find_documents(data.chunks(split)).index
    for split in ('train', 'some')
  )
  both = np.intersect1d(train, some)
  with pytest.raises(ValueError, match=f'{len(both)} of the {len(some)} docum'):
    _evaluate(config, workdir, split='some')
  _build(config, tmp_path, 'datastore')
  folder = knn_lm_prepare.folder_of(tmp_path)
  pairs = key_values.KeyValueStore(folder / 'datastore')
  assert pairs.num_documents == len(train) - len(both) > 0
  pairs.check_without(data.tokens, some)


def _hashes(workdir):
  return tiny_stores.file_hashes(
    knn_lm_prepare.folder_of(workdir) / 'datastore'
  )


def test_a_killed_build_and_lookup_end_with_the_same_bytes(
  runs, built, workdir, tmp_path, monkeypatch
):
  read, calls = knn_lm.read_tokens, []

  def killed(*args, **kwargs):
    calls.append(1)
    if len(calls) in (3, 9):
      raise KeyboardInterrupt
    return read(*args, **kwargs)

  config = tiny_knn_lm.config(model_workdir='baseline')
  _evaluate(tiny_knn_lm.config(), workdir)
  monkeypatch.setattr(knn_lm, 'read_tokens', killed)
  with pytest.raises(KeyboardInterrupt):
    _build(config, tmp_path, 'datastore')
  whole = len(list((tmp_path / 'knn_lm').glob('datastore.partial-*/shard-*')))
  assert whole == 2
  with pytest.raises(KeyboardInterrupt):
    _build(config, tmp_path, 'datastore')
  _build(config, tmp_path, 'datastore')
  assert _hashes(tmp_path) == _hashes(built)
  before, _ = _read(workdir)
  # Nothing is looked up again.
  _evaluate(tiny_knn_lm.config(), workdir)
  assert _read(workdir)[0] == before


def test_keys_made_while_retrieving(root, runs, built, tmp_path):
  retrieving = {'retrieval': True, 'max_documents': 5}
  config = tiny_knn_lm.config(model_workdir='retro', **retrieving)
  _build(config, tmp_path)
  _evaluate(config, tmp_path)
  found, rows = _read(tmp_path)
  assert found['datastore']['documents'] == 5
  on = retro_evaluate.evaluate_trained(
    tiny_knn_lm.trained(root, baseline=False), config, tiny_knn_lm.evaluate()
  )[0]
  chunks = tiny_knn_lm.trained(root).data.chunks('valid')
  index = windows_lib.find_documents(chunks).index
  kept = ~np.isin(index, found['tuned_on'])
  nats = on.evaluation.nats[kept].sum()
  assert rows['model alone']['nats'] == pytest.approx(nats, rel=1e-6)


def test_what_does_not_fit_is_told(runs, workdir, tmp_path):
  def refused(match, run=_evaluate, folder=workdir, **fields):
    with pytest.raises((ValueError, FileNotFoundError), match=match):
      run(tiny_knn_lm.config(**fields), folder)

  refused('same model', model_workdir='other')
  refused('knn_lm.retrieval', retrieval=True)
  refused('tune_share', tune_share=1.0)
  refused('no key-values store', folder=tmp_path)
  refused('another|something else', _build, max_documents=3)


def test_an_index_below_the_floor_is_refused(runs, tmp_path, monkeypatch):
  monkeypatch.setattr(key_values, 'recall', lambda *_, **__: 0.5)
  low = {'knn_lm.index.recall_floor': 0.4}
  _build(tiny_knn_lm.config(low, model_workdir='baseline'), tmp_path)
  with pytest.raises(ValueError, match='0.5000, below knn_lm.index.recall_fl'):
    _evaluate(tiny_knn_lm.config(model_workdir='baseline'), tmp_path)
