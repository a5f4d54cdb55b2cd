# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A baseline with n-grams from its config to its scores, on one device and on eight."""

import dataclasses
import shutil

import jax
import numpy as np
import pytest

from experiments.retro import evaluate as retro_evaluate
from retro_jax.trained import language_model
from tests.experiments.engine import equal_runs, tiny_run
from tests.experiments.retro import tiny_config

ONE = jax.devices()[:1]


def _train(root, workdir, devices=ONE, **changes):
  config = tiny_config.tiny(
    arg='ngram_test', data_dir=str(root), eval_batches=0, **changes
  )
  return config, *tiny_run.train(config, root, workdir, devices)


@pytest.fixture(scope='module')
def run(root, tmp_path_factory):
  """Four steps, with a checkpoint after two."""
  workdir = tmp_path_factory.mktemp('ngram')
  return workdir, *_train(root, workdir)


@pytest.mark.slow
def test_microbatches_on_eight_devices_give_the_same(root, run, tmp_path):
  changes = {'mesh.fsdp': 2, 'mesh.tensor': 4, 'optimizer.accumulate_steps': 4}
  _, state, rows = _train(root, tmp_path, jax.devices(), **changes)
  for name in ('loss', 'grad_norm'):
    a, b = ([x[name] for x in y] for y in (rows, run[3]))
    np.testing.assert_allclose(a, b, rtol=5e-6, err_msg=name)
  table = state.params['layer_1_ngrams']
  assert table.shape == (8 * 64, 16)
  assert table.sharding.shard_shape(table.shape) == (2 * 64, 8)


def test_a_run_that_ended_early_goes_on_bit_for_bit(root, run, tmp_path):
  workdir = tmp_path / 'run'
  shutil.copytree(run[0], workdir)
  shutil.rmtree(workdir / 'checkpoints/4')
  _, state, _ = _train(root, workdir)
  assert equal_runs.rows(workdir) == equal_runs.rows(run[0])
  jax.tree.map(np.testing.assert_array_equal, state.params, run[2].params)


def test_it_scores_samples_and_is_evaluated(root, run):
  workdir, config, _, _ = run
  model = language_model.load(workdir)
  assert model.model.config.ngrams.layers == (1, 2)
  text = 'river queen tensor apple Ünder 日本 moon walked seven lanterns'
  whole = model.score(text)
  [likelihood] = model.loglikelihood([''], [text])
  assert likelihood.nats == pytest.approx(sum(whole[0].off), rel=1e-4)
  [greedy] = model.sample('river queen', max_new_tokens=9, temperature=0.0)
  again = model.sample('river queen', max_new_tokens=9, temperature=0.0)
  assert greedy.text == again[0].text
  evaluate = tiny_config.section('evaluate', arg='ngram_test', split='valid')
  results = retro_evaluate.evaluate_trained(model, config, evaluate)
  assert [*results] == ['baseline']
  assert results['baseline'].nats.min() > 0
  without = dataclasses.replace(
    model,
    params={
      k: jax.tree.map(np.zeros_like, v) if k.endswith('_ngrams') else v
      for k, v in model.params.items()
    },
  )
  assert without.score(text).bits_per_byte_off != whole.bits_per_byte_off
