# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The commands of kNN-LM on a tiny model and data folder."""

import json
import shutil

import numpy as np
import pytest

from experiments.knn_lm import (
  evaluate as knn_lm_evaluate,
  prepare as knn_lm_prepare,
)
from experiments.retro import evaluate as retro_evaluate
from retrieval.store import array_store
from retro_jax.data import folder as retro_data, windows as windows_lib
from retro_jax.trained import language_model
from tests.experiments.knn_lm import tiny_knn_lm


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
  monkeypatch.setattr(knn_lm_evaluate, 'TOKENS_PER_GROUP', 60)
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


def _pairs(workdir):
  return array_store.Store.open(
    workdir / 'knn_lm/datastore', knn_lm_prepare.KIND
  )


def test_the_datastore_is_every_training_token(root, built):
  pairs = _pairs(built)
  chunks = retro_data.DataFolder(root).chunks('train')
  documents = windows_lib.find_documents(chunks)
  want = [chunks.tokens.document(int(i))[1:] for i in documents.index]
  np.testing.assert_array_equal(pairs.array('values')[:], np.concatenate(want))
  keys = pairs.array('keys')
  assert pairs.num_shards > 3 and isinstance(keys.shard(0), np.memmap)
  assert keys.dtype == np.float16 and keys.shape[1] == 12


def test_the_table_reports_what_was_not_tuned_on(root, runs, workdir, capsys):
  _evaluate(tiny_knn_lm.config(retro_workdir='retro'), workdir)
  found, rows = _read(workdir)
  of_k = [f'kNN-LM, k={k}' for k in (1, 4, 16)]
  others = ["kNN-LM, paper's", 'RETRO, k=2', 'RETRO off']
  assert list(rows) == ['model alone', 'kNN-LM', *of_k, *others]
  chunks = retro_data.DataFolder(root).chunks('valid')
  number = len(windows_lib.find_documents(chunks).index)
  alone = rows.pop('model alone')
  for row in rows.values():
    assert row['documents'] == number - len(found['tuned_on']) > 0
    assert row['tokens'] == alone['tokens'] > 0
    difference = row['bits_per_byte'] - alone['bits_per_byte']
    assert row['minus_alone']['mean'] == pytest.approx(difference)
  papers = rows["kNN-LM, paper's"]
  want = pytest.approx((0.118, 0.00785, 16))
  assert (papers['lambda'], papers['alpha'], papers['k']) == want
  # What is chosen serves the tuned documents best, and 0 is the model alone.
  best = min(found['sweep'], key=lambda x: x['tuned_on'])
  for name in ('k', 'temperature', 'lambda'):
    assert rows['kNN-LM'][name] == best[name]
  assert rows['kNN-LM']['bits_per_byte'] == pytest.approx(best['reported'])
  weight_0 = {x['reported'] for x in found['sweep'] if x['lambda'] == 0}
  assert weight_0 == {alone['bits_per_byte']}
  assert len(found['sweep']) == 3 * 2 * 3
  printed = capsys.readouterr().out
  assert not [name for name in rows if f' {name} ' not in printed], printed


def test_rows_equal_the_evaluation_and_a_slow_search(root, runs, tmp_path):
  """One setting, against all pairs of keys."""
  data = tiny_knn_lm.add_evaluation_set(root, tmp_path / 'data', 0.07)
  runs['root'] = data.root
  setting = {'ks': (4,), 'temperatures': (10.0,), 'lambdas': (0.3,)}
  config = tiny_knn_lm.config(
    model_workdir='baseline', retro_workdir='retro', **setting
  )
  workdir = tmp_path / 'knn_lm'
  _build(config, workdir)
  sizes = tiny_knn_lm.evaluate(split='some', stride_chunks=1)
  knn_lm_evaluate.evaluate(config, str(workdir), sizes)
  content, rows = _read(workdir)
  trained = tiny_knn_lm.trained(data.root)
  documents = windows_lib.find_documents(data.chunks('some'))
  reported = ~np.isin(documents.index, content['tuned_on'])
  results = retro_evaluate.evaluate_trained(trained, config, sizes)
  baseline = results['baseline'].take(reported).summary()
  documents = documents.take(reported)
  assert documents.count.max() > 4  # there are several windows
  assert {row['documents'] for row in rows.values()} == {len(documents.index)}
  for name in ('bits_per_byte', 'word_perplexity', 'documents', 'bytes'):
    assert rows['model alone'][name] == pytest.approx(baseline[name], rel=1e-6)
  keys, values = (_pairs(workdir).array(x)[:] for x in ('keys', 'values'))
  tokens = knn_lm_prepare.Reader(
    trained, config, 'some', documents, 1 << 20, stride_chunks=1
  ).read(0)
  total = 0.0
  for key, target, nats in zip(
    tokens.keys, tokens.targets, tokens.nats, strict=True
  ):
    distances = ((keys - key.astype(np.float64)) ** 2).sum(1)
    near = np.argsort(distances, kind='stable')[:4]
    weights = np.exp(-distances[near] / 10)
    share = weights[values[near] == target].sum() / weights.sum()
    total -= np.log(0.3 * share + 0.7 * np.exp(-np.float64(nats)))
  assert rows['kNN-LM']['nats'] == pytest.approx(total, rel=1e-5)
  assert rows['kNN-LM']['nats'] != pytest.approx(baseline['nats'], rel=1e-3)
  model, numbers = knn_lm_evaluate.load(workdir), documents.index.tolist()
  decode = model.data.tokenizer.decode
  texts = [decode(data.tokens.document(i)) for i in numbers]
  scored = model.loglikelihood([''] * len(texts), texts, stride_chunks=1)
  assert sum(x.nats for x in scored) == pytest.approx(total, rel=1e-5)
  with pytest.raises(ValueError, match='draws no samples'):
    model.sample(texts)


def test_a_build_leaves_out_the_evaluation_set(root, runs, workdir, tmp_path):
  data = tiny_knn_lm.add_evaluation_set(root, tmp_path / 'data', 0.6)
  runs['root'] = data.root
  config = tiny_knn_lm.config(model_workdir='baseline')
  with pytest.raises(ValueError, match='without a look at .*chunks-some'):
    _evaluate(config, workdir, split='some')
  _build(config, tmp_path)
  documents = windows_lib.find_documents(data.chunks('train')).index
  some = windows_lib.find_documents(data.chunks('some')).index
  left = np.setdiff1d(documents, some)
  sizes = [len(data.tokens.document(int(i))) - 1 for i in left]
  assert len(_pairs(tmp_path).array('values')) == sum(sizes) > 0
  assert len(left) < len(documents)
  _evaluate(config, tmp_path, split='some')


def test_settings_are_tuned_on_another_split(root, runs, workdir):
  sweeps = {}
  for split, other in (('valid', 'test'), ('test', 'valid')):
    _evaluate(tiny_knn_lm.config(tune_split=other), workdir, split=split)
    content, rows = _read(workdir)
    sweeps[split] = content['sweep']
  documents = windows_lib.find_documents(
    retro_data.DataFolder(root).chunks('test')
  )
  assert rows['kNN-LM']['documents'] == len(documents.index)
  assert content['tuned_on'] == []
  best = min(content['sweep'], key=lambda x: x['tuned_on'])
  assert rows['kNN-LM']['bits_per_byte'] == pytest.approx(best['reported'])
  tuned = [x['tuned_on'] for x in sweeps['test']]
  assert tuned == pytest.approx([x['reported'] for x in sweeps['valid']])


def test_documents_are_hashed_by_id_and_by_text(root):
  chunks = retro_data.DataFolder(root).chunks('valid')
  documents = windows_lib.find_documents(chunks)
  ids, texts = knn_lm_prepare.document_hashes(chunks, documents).T
  assert len({*ids, *texts}) == 2 * len(documents.index)


def test_what_does_not_fit_is_told(runs, workdir, tmp_path):
  def refused(match, run=_evaluate, folder=workdir, **fields):
    with pytest.raises((ValueError, FileNotFoundError), match=match):
      run(tiny_knn_lm.config(**fields), folder)

  refused('same model', model_workdir='other')
  refused('ks', ks=())
  refused('index.metric', **{'index.metric': 'dot_product'})
  refused('no key-values store', folder=tmp_path)
  refused('another|something else', _build, max_documents=3)
