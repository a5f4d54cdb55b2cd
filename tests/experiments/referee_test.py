# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Every model of the library passes the referee; the command judges any other."""

import dataclasses
import json

import numpy as np
import pytest

from experiments import referee as command
from experiments.knn_lm import evaluate as knn_lm_evaluate
from experiments.realm import masked_words
from experiments.retro import copying
from realm_jax.trained import loading as realm_loading
import retro_jax
from retro_jax.nn import models
from retro_jax.trained import language_model, packaged
from tests.experiments.realm import tiny_trained
from tests.experiments.retro import tiny_retro
from tests.retro_jax.nn import tiny

_MODULE = """
import numpy as np

def encode(text):
  return [0, *text.encode()]

def log_probs(tokens):
  rows = np.cumsum(np.eye(256)[tokens], axis=1) + 1
  return np.log(rows / rows.sum(-1, keepdims=True)){more}
"""


def _texts(model, most=3):
  place = command.Place(workdir='')
  return command.held_out(model, place, 'test', most)


def _names(report, passed):
  return [x.name for x in report.verdicts if x.passed is passed]


def _figures(report, name):
  return next(x.figures for x in report.verdicts if x.name == name)


_JOINT = {
  **tiny.LLAMA,
  'd_model': 24,
  'joint': True,
  'joint_rank': 2,
  'begin_id': 1,
  'num_layers': 2,
  'cca_layers': (1, 2),
}


def _trained(root, kind):
  trained = tiny_retro.trained(root, kind == 'baseline')
  if kind != 'retrofit':
    return trained
  sizes = {'vocab_size': 300, 'chunk_length': 4, 'neighbor_length': 7}
  joint = tiny.config(**sizes | _JOINT)
  return dataclasses.replace(
    trained, model=models.of(joint), params=tiny.params(joint)
  )


@pytest.mark.parametrize(
  'kind',
  ['retro', 'baseline', pytest.param('retrofit', marks=pytest.mark.slow)],
)
def test_language_models_pass(root, kind):
  model = _trained(root, kind)
  again = _trained(root, kind).scorer().log_probs
  report = retro_jax.referee(model, _texts(model), num_places=4, again=again)
  assert not report.failed, report
  assert _names(report, None) == ['cost'], report
  assert 'decoded' in _figures(report, 'cache')
  if kind != 'baseline':
    speaks = _figures(report, 'sums to 1').partition(', at ')[2]
    assert int(speaks.split()[0]) > 3, report


@pytest.fixture(scope='module')
def evaluated(root, tmp_path_factory):
  """A kNN-LM and a copying mixture of the baseline, evaluated."""
  from tests.experiments.knn_lm import tiny_knn_lm

  folder = tmp_path_factory.mktemp('knn')
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(
      language_model, 'load', lambda *_, **__: tiny_retro.trained(root, True)
    )
    config = tiny_knn_lm.config()
    from experiments.knn_lm import prepare

    prepare.prepare(config, str(folder), prepare.Prepare())
    knn_lm_evaluate.evaluate(config, str(folder), tiny_knn_lm.evaluate())
    yield knn_lm_evaluate.load(folder)


def test_a_knn_lm_passes(root, evaluated):
  model = dataclasses.replace(evaluated, weight=0.3, temperature=1.0)
  report = retro_jax.referee(model, _texts(model), num_places=4)
  assert not report.failed, report
  speaks = _figures(report, 'sums to 1').partition(', at ')[2]
  assert int(speaks.split()[0]) == 12, report
  # Where the neighbors' share counts too often, the sum tells.
  double = dataclasses.replace(
    model.scorer(),
    log_probs=lambda *x: np.log(2 * np.exp(model.scorer().log_probs(*x))),
  )
  assert 'sums to 1' in retro_jax.referee(double, _texts(model)).failed


def test_a_mixture_with_copying_passes(root, tmp_path):
  rows = [
    {'name': 'with n-grams of neighbors', 'weights': [0.1, 0.3, 0.5, 0.7]}
  ]
  (tmp_path / 'copying.json').write_text(json.dumps({'rows': rows}))
  model = copying.load(tiny_retro.trained(root, True), str(tmp_path))
  report = retro_jax.referee(model, _texts(model), num_places=4)
  assert not report.failed, report
  speaks = _figures(report, 'sums to 1').partition(', at ')[2]
  assert int(speaks.split()[0]) > 3, report


def test_a_realm_passes(tmp_path):
  data = tiny_trained.make_data(tmp_path / 'data')
  folder = tiny_trained.save(tmp_path / 'run', data)
  model = realm_loading.load(folder, part='realm')
  documents = masked_words.documents(model, 0.0, 3)
  report = retro_jax.referee(
    masked_words.scorer(model), documents, num_places=4
  )
  assert not report.failed, report


def test_the_command_judges_a_function_of_a_module(tmp_path, monkeypatch):
  monkeypatch.syspath_prepend(str(tmp_path))
  texts = [f'a text of {i} lines, and more of it below' for i in range(4)]
  (tmp_path / 'texts.txt').write_text('\n'.join(texts))
  read = command.read_texts(str(tmp_path / 'texts.txt'), 3)
  assert read == texts[:3]
  for name, more, failed in (
    ('fair', '', []),
    ('unfair', ' + .5', ['sums to 1']),
  ):
    (tmp_path / f'{name}.py').write_text(_MODULE.format(more=more))
    place = command.Place(model=f'{name}:log_probs')
    report = command.judge(place, read, split='', max_documents=3, num_places=4)
    assert report.failed == failed, report
    assert 'restart' in _names(report, True)


@pytest.mark.parametrize('name', ['nowhere:log_probs', 'json:nothing', 'json:'])
def test_a_model_that_is_not_there_is_refused(name):
  with pytest.raises(ValueError, match=f'^--model={name}: '):
    command.load(command.Place(model=name))


@pytest.mark.slow
@pytest.mark.parametrize('name', packaged.NAMES)
def test_models_of_the_package_pass(name):
  place, texts = command.Place(workdir=name), None
  if name == packaged.READER:  # nothing of its articles is held out
    texts = [
      x * 8 for x in ('The miller counted his sacks of flour. ', 'A comet! ')
    ]
  how = {'max_documents': 2, 'num_places': 2} if texts else {'max_documents': 8}
  report = command.judge(place, texts, split='test', **how)
  assert not report.failed, report
