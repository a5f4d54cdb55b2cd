# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Claims: trained, classified, measured."""

import json
import shutil

import jax
import numpy as np
import pytest

from configs import claims_base
from experiments.engine import configs
from experiments.open_qa import (
  config as config_lib,
  evaluate as evaluators,
)
from realm_jax.serving import (
  answers,
  block_reader,
  trained_models,
)
from retrieval.questions import claims as claims_lib
from tests.experiments.open_qa import tiny_open_qa
from tests.experiments.realm import tiny_realm

_ONE = jax.devices()[:1]
LABELS = ('SUPPORTS', 'REFUTES', 'NOT ENOUGH INFO')


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  """Data of forty mills; claims.jsonl, of which the last has no evidence."""
  root = tiny_realm.make_data(tmp_path_factory.mktemp('claims') / 'data')
  lines = [
    {
      'id': i,
      'claim': f'The mill {i} stood in Paris.',
      'label': LABELS[i % 3],
      'evidence': [[[0, 0, None if i % 3 == 2 else f'Mill_{i}', 0]]],
    }
    for i in range(6)
  ]
  for name, kept in (('claims', lines), ('blind', lines[:2])):
    if name == 'blind':
      kept = [{'id': x['id'], 'claim': x['claim']} for x in kept]
    text = ''.join(json.dumps(line) + '\n' for line in kept)
    (root / f'{name}.jsonl').write_text(text)
  return root


def _config(data, arg='test', **fields):
  """Four steps of a tiny model."""
  c = claims_base.get_config(arg)
  tiny_open_qa.set_tiny(c, data)
  c.lookup.retriever_beam = 500  # all blocks
  c.claims.train = (f'fever:train={data}/claims.jsonl',)
  c.claims.dev = (f'fever:dev={data}/claims.jsonl',)
  c.optimizer.warmup_steps = 1
  return configs.replaced(configs.build(config_lib.ClaimsConfig, c), **fields)


def _sets(data):
  return (
    f'fever:dev={data}/claims.jsonl',
    f'fever:test={data}/blind.jsonl',
  )


@pytest.fixture(scope='module')
def run(data, tmp_path_factory):
  config = _config(data)
  workdir = tmp_path_factory.mktemp('run')
  return config, workdir, *tiny_open_qa.train(config, workdir)


def test_evaluation_and_its_predictions_agree(run, tmp_path, monkeypatch):
  config, workdir, _, _ = run
  monkeypatch.setattr(jax, 'local_devices', lambda: _ONE)
  folder = tmp_path / 'run'
  shutil.copytree(workdir, folder)
  wanted = evaluators.Evaluate(claims=_sets(config.data_dir), ks=(1, 5, 20))
  evaluators.evaluate(config, str(folder), wanted)
  result = json.loads((folder / evaluators.CLAIMS_FILE).read_text())
  [row] = result['sets']  # the blind set has no measures
  lines = [
    json.loads(line)
    for line in (folder / 'claims_fever_dev.jsonl').read_text().splitlines()
  ]
  right = [line['label'] == line['predicted'] for line in lines]
  assert row['accuracy']['mean'] == pytest.approx(np.mean(right))
  table = np.asarray(row['confusion'])
  assert table.sum(axis=1).tolist() == [2, 2, 2]
  assert np.trace(table) == sum(right)
  # Four claims have evidence; the deciding block is named.
  named = [
    line['title'] == f'Mill {line["id"]}'
    for line in lines
    if line['label'] != LABELS[2]
  ]
  assert row['evidence_decided']['mean'] == pytest.approx(np.mean(named))
  blind = (folder / 'claims_fever_test.jsonl').read_text().splitlines()
  for seen, line in zip(lines, map(json.loads, blind), strict=False):
    assert line['label'] is None
    assert line['predicted'] == seen['predicted']
    assert line['probability'] == pytest.approx(seen['probability'], abs=1e-5)


def test_macro_f1_equals_the_definition():
  table = np.array([[1, 1, 0, 0], [0, 1, 0, 0], [1, 0, 2, 0], [0, 0, 0, 0]])
  # Precision and recall: (1/2, 1/2), (1/2, 1), (1, 2/3); no claim of class 3.
  f1 = np.mean([0.5, 2 / 3, 0.8])
  assert evaluators.macro_f1(table) == pytest.approx(f1)


def test_evidence_is_measured_where_it_is_named():
  def found(label, titles, evidence, rank):
    claim = claims_lib.Claim('', 'x', label, titles)
    return answers.Classified(
      claim, 0, np.ones(2) / 2, 3, np.array(evidence), rank
    )

  row = evaluators.measure_claims(
    [
      found(0, ('A',), [False, True, False], 1),
      found(0, ('A',), [True, False, False], 0),
      found(1, (), [False, False, False], 0),
    ],
    2,
    (1, 2, 9),
  )
  means = {k: v['mean'] for k, v in row.items() if isinstance(v, dict)}
  assert means == pytest.approx(
    {
      'accuracy': 2 / 3,
      'majority': 2 / 3,
      'evidence_top_1': 0.5,
      'evidence_top_2': 1.0,
      'evidence_top_3': 1.0,
      'evidence_decided': 1.0,
    }
  )


def test_rules_and_batches(run):
  config, workdir, _, _ = run
  trained = trained_models.load(workdir, part='classifier')
  retriever = trained.retriever(workdir / 'index')
  found = claims_lib.load(_sets(config.data_dir)[0]).claims
  one, many = (
    list(
      block_reader.Classifier(
        trained, retriever, rule='marginal', batch_size=size
      )(found)
    )
    for size in (1, 8)
  )
  for a, b in zip(one, many, strict=True):
    assert a.predicted == b.predicted == a.probabilities.argmax()
    np.testing.assert_allclose(a.probabilities, b.probabilities, atol=1e-5)
    assert a.probabilities.sum() == pytest.approx(1)
    assert a.block == b.block
  with pytest.raises(ValueError, match="rule 'mean'"):
    block_reader.Classifier(trained, retriever, rule='mean')


def test_bad_input_is_refused_in_one_line(data, tmp_path):
  for fields, message in (
    ({'claims.train': ()}, 'claims.train is empty'),
    ({'claims.dev': ()}, 'claims.dev is empty'),
    ({'claims.dev': ('hover:dev=x',)}, 'one data set'),
    ({'claims.train': (f'fever:train={data}/blind.jsonl',)}, 'has no labels'),
    ({'claims.train': ('vitaminc:train=x',), 'claims.dev': ()}, 'vitaminc'),
    ({'claims.labels': ('yes', 'no')}, r"\('yes', 'no'\) for fever"),
  ):
    config = _config(data, **fields)
    with pytest.raises(ValueError, match=message):
      tiny_open_qa.task(config, tmp_path)
  with pytest.raises(FileNotFoundError):
    trained_models.load(tmp_path, part='classifier')
