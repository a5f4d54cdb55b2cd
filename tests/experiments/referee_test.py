# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Every model of the library passes the referee; the command judges any other."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest

from experiments import referee as command
from experiments.knn_lm import (
  evaluate as knn_lm_evaluate,
  prepare as knn_lm_prepare,
)
from experiments.realm import masked_words
from experiments.retro import copying
from realm_jax.trained import loading as realm_loading
import retro_jax
from retro_jax.nn import models
from retro_jax.trained import language_model, packaged
from tests.experiments.knn_lm import tiny_knn_lm
from tests.experiments.realm import tiny_trained
from tests.experiments.retro import tiny_retro
from tests.retro_jax.nn import tiny

slow = pytest.mark.slow
_MODULE = """
import numpy as np

def encode(text):
  return [0, *text.encode()]

def log_probs(tokens):
  rows = np.cumsum(np.eye(256)[tokens], axis=1) + 1
  return np.log(rows / rows.sum(-1, keepdims=True)) + 0.1
"""


def _judge(model, documents=None, again=None):
  """Return each verdict by its name; all of them pass, or have nothing to judge."""
  documents = documents or command.held_out(
    model, command.Place(), 'test', most=3
  )
  report = retro_jax.referee(model, documents, num_places=4, again=again)
  assert not report.failed, report
  return {x.name: x for x in report.verdicts}


def _places_where_the_memory_speaks(verdicts):
  speaks = verdicts['sums to 1'].figures.partition(', at ')[2]
  return int(speaks.split()[0])


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
  ['retro', *(pytest.param(x, marks=slow) for x in ('baseline', 'retrofit'))],
)
def test_language_models_pass(root, kind):
  again = _trained(root, kind).scorer().log_probs
  verdicts = _judge(_trained(root, kind), again=again)
  assert [k for k, x in verdicts.items() if x.passed is None] == ['cost']
  assert 'decoded' in verdicts['cache'].figures
  if kind != 'baseline':
    assert _places_where_the_memory_speaks(verdicts) > 3


@slow
def test_a_knn_lm_passes(root, tmp_path, monkeypatch):
  alone = tiny_retro.trained(root, True)
  monkeypatch.setattr(language_model, 'load', lambda *_, **__: alone)
  config = tiny_knn_lm.config()
  knn_lm_prepare.prepare(config, str(tmp_path), knn_lm_prepare.Prepare())
  knn_lm_evaluate.evaluate(config, str(tmp_path), tiny_knn_lm.evaluate())
  model = knn_lm_evaluate.load(tmp_path)
  model = dataclasses.replace(model, weight=0.3, temperature=1.0)
  assert _places_where_the_memory_speaks(_judge(model)) == 12
  vars(model.datastore)['hidden'] = np.zeros(1 << 22)  # 34 MB
  documents = command.held_out(model, command.Place(), 'test', most=3)
  assert retro_jax.referee(model, documents).failed == ['bytes']


@slow
def test_a_mixture_with_copying_passes(root, tmp_path):
  weights = [0.1, 0.3, 0.5, 0.7]
  rows = [{'name': 'with n-grams of neighbors', 'weights': weights}]
  content = json.dumps({'rows': rows, 'num_neighbors': 3})
  (tmp_path / 'copying.json').write_text(content)
  model = copying.load(tiny_retro.trained(root, True), str(tmp_path))
  assert model._num_neighbors(None) == 3
  assert _places_where_the_memory_speaks(_judge(model)) > 3


@slow
def test_a_realm_passes(tmp_path):
  data = tiny_trained.make_data(tmp_path / 'data')
  folder = tiny_trained.save(tmp_path / 'run', data)
  model = realm_loading.load(folder, part='realm')
  documents = masked_words.documents(model, 0.0, 3)
  assert _judge(masked_words.scorer(model), documents)['memory'].passed


def test_the_command_judges_a_function_of_a_module(tmp_path, monkeypatch):
  monkeypatch.syspath_prepend(str(tmp_path))
  texts = [f'a text of {i} lines, and more of it below' for i in range(4)]
  (tmp_path / 'texts.txt').write_text('\n'.join(texts))
  read = command.read_texts(str(tmp_path / 'texts.txt'), 3)
  assert read == texts[:3]
  (tmp_path / 'counts.py').write_text(_MODULE)
  place = command.Place(model='counts:log_probs')
  report = command.judge(place, read, num_places=4)
  assert report.failed == ['sums to 1'], report
  [restart] = [x for x in report.verdicts if x.name == 'restart']
  assert restart.passed


@pytest.mark.parametrize(
  'name', ['nowhere:log_probs', 'json:nothing', 'json:', ':x', '.json:x']
)
def test_a_model_that_is_not_there_is_refused(name):
  with pytest.raises(ValueError, match=f'^--model={name}: '):
    command.load(command.Place(model=name))


@slow
@pytest.mark.parametrize('name', packaged.NAMES)
def test_models_of_the_package_pass(name, tmp_path):
  # A shared process would count bytes that other tests' functions reach.
  flags = [f'--workdir={name}']
  if name == packaged.READER:  # nothing of its articles is held out
    sentences = 'The miller counted his sacks of flour. ', 'A comet! '
    path = tmp_path / 'texts.txt'
    path.write_text('\n'.join(x * 8 for x in sentences))
    flags += [f'--texts={path}', '--num_places=2']
  done = subprocess.run(
    [sys.executable, '-m', 'experiments.referee', *flags],
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stdout + done.stderr
  assert 'failed: none' in done.stdout
