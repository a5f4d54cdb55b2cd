# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows of RETRO's claims, from a bundle, are those of the data pipeline."""

import dataclasses
import functools
import json

from flax import traverse_util
import jax
import numpy as np
import pytest

from experiments.accelerators import (
  claim_rows,
  retro_bundle,
  retro_rows,
  weight_files,
)
from retro_jax.data import folder as retro_data, pipeline
from retro_jax.evaluation import evaluate as evaluate_lib
from retro_jax.nn import retro as model_lib
from tests.experiments.accelerators import bare
from tests.experiments.retro import tiny_config
from tests.retro_jax.data import tiny_data

_CONFIG = tiny_config.tiny(
  **{
    'model.vocab_size': 300,
    'tokenizer.vocab_size': 300,
    'neighbors.stored': tiny_data.K,
    'optimizer.clip_norm': 0.0,
    'num_steps': 25,
  }
)


@pytest.fixture(scope='module')
def arrays(root):
  data = retro_data.DataFolder(root)
  splits = ['test', 'valid']
  return retro_bundle.pack(_CONFIG, data, splits, ['dense'], batch_size=8)


@pytest.fixture(scope='module')
def bundle(arrays):
  return retro_bundle.unpack(arrays)


def _run(bundle, name, seeds=(0,), **changes):
  row = next(x for x in claim_rows.ROWS if x.name == name)
  config = dataclasses.replace(_CONFIG, **changes)
  return retro_rows.run(row, config, bundle, seeds, {})


def test_training_rows_are_those_of_the_pipeline(root, bundle):
  reader = tiny_data.reader(root)
  rows = pipeline.Sequences(reader, 4, 1)
  ids = np.stack([rows.ids(i) for i in range(len(rows))])
  train = bundle['train']
  found = train['dense'][np.maximum(ids, 0)][..., :2]
  table = bundle['table']
  made = retro_bundle.rows_of(table, ids, None, found, tiny_data.R)
  wanted = reader.read(ids)
  assert made.keys() == wanted.keys()
  for name, x in wanted.items():
    np.testing.assert_array_equal(made[name], x, name)


def test_documents_are_read_as_by_evaluation(root, bundle):
  row = claim_rows.Row(name='x', fresh=True)
  cfg = retro_rows.model_of(_CONFIG, 300)
  params = retro_rows.start_of(row, cfg, seed=0)
  params = {k: x for k, x in params.items() if not k.startswith('gate')}
  whole = jax.tree.map(np.asarray, _nested(params))
  several = jax.tree.map(lambda x: x[None], whole)
  visible = np.ones(tiny_data.R, bool)
  found = retro_rows.read(row, cfg, several, bundle, visible)
  model = model_lib.Retro(cfg)
  score = jax.jit(functools.partial(evaluate_lib.score_chunks, model))
  for split, name, k, retrieval in (
    ('test', 'k2', 2, 'on'),
    ('test', 'k1', 1, 'on'),
    ('test', 'off', 2, 'off'),
    ('test', 'shuffled', 2, 'shuffled'),
    ('valid', 'k10', 3, 'on'),  # no more are stored
  ):
    wanted = evaluate_lib.evaluate(
      lambda batch: score(whole, batch),
      tiny_data.reader(root, split, k),
      sequence_chunks=4,
      retrieval=retrieval,
    )
    np.testing.assert_allclose(
      found[f'{split}/{name}'][0], wanted.nats, rtol=1e-5, err_msg=name
    )


def _nested(flat):
  return traverse_util.unflatten_dict(flat, sep='/')


def test_a_decoder_that_learns_apart_is_the_baseline(bundle):
  apart = _run(bundle, 'retro_apart', seeds=(0, 1))
  alone = _run(bundle, 'baseline_copy', seeds=(0, 1))
  off, baseline = apart['test/off'], alone['test/off']
  np.testing.assert_allclose(off, baseline, rtol=1e-3)
  assert abs(off[0] - off[1]).max() > 1e-2
  assert abs(apart['test/k2'] - off).max() > 1e-2
  assert json.loads(str(apart['facts']))['seeds'] == [0, 1]


@pytest.mark.slow
def test_a_dry_run_keeps_weights_on_a_bare_machine(arrays, tmp_path):
  np.savez(tmp_path / 'bundle.npz', **arrays)
  sizes = {
    'model.chunk_length': tiny_data.M,
    'model.neighbor_length': tiny_data.R,
    'tokenizer.vocab_size': 300,
    'neighbors.stored': tiny_data.K,
  }
  bare.run(
    'experiments.accelerators.retro_rows',
    '--dry_run',
    '--weights',
    '--seconds=0.1',
    '--rows=retro_copy|baseline_copy',
    f'--bundle={tmp_path}/bundle.npz',
    f'--workdir={tmp_path}',
    '--config=configs/retro_pretrain_quickstart.py:test',
    *(f'--config.{name}={x}' for name, x in sizes.items()),
  )
  for name, parts in (('retro_copy', 1), ('baseline_copy', 0)):
    tree = weight_files.read(tmp_path, f'{name}-0')
    assert sum(x.endswith('_cca') for x in tree) == parts
    assert (tmp_path / f'{name}.npz').exists()


def test_what_is_not_added_is_not_read(bundle):
  found = _run(bundle, 'retro_copy_untrained', seeds=(0,))
  assert abs(found['test/k2'] - found['test/off']).max() > 1e-2
  shut = dataclasses.replace(
    next(x for x in claim_rows.ROWS if x.name == 'retro_copy_untrained'),
    output=0.0,
  )
  found = retro_rows.run(shut, _CONFIG, bundle, [0], {})
  np.testing.assert_allclose(found['test/k2'], found['test/off'], rtol=1e-6)
