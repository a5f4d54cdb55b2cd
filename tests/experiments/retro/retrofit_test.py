# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""RETROfit: what is frozen stays as it is, what is new learns, OFF is the baseline.

Other runs start from all weights of a run, or a baseline from its decoder's.
"""

import functools
import shutil

import jax
import numpy as np
import pytest

from experiments.engine import program as program_lib
from experiments.retro import task as retro_task
from retrieval.store import checkpoints
from retro_jax.data import folder as retro_data
from retro_jax.trained import language_model
from tests.experiments.engine import tiny_run
from tests.experiments.retro import tiny_config
from tests.retro_jax.data import tiny_data

STEPS = 4


def _config(root, arg='test', model=(), **fields):
  model = {
    'num_layers': 2,
    'cca_layers': (1, 2),
    'encoder_num_layers': 1,
    'share_embeddings': False,
    'copy_init': False,
    'encoder_d_model': 16,
    **dict(model),
  }
  fields = {'num_steps': STEPS, 'eval_batches': 0} | fields
  fields |= {f'model.{name}': value for name, value in model.items()}
  fields = {x: str(y) if x.endswith('_from') else y for x, y in fields.items()}
  return tiny_config.tiny(
    'retro_pretrain_small', arg, data_dir=str(root), **fields
  )


@pytest.fixture(scope='module')
def baseline(root, tmp_path_factory):
  """A decoder trained without retrieval."""
  workdir = tmp_path_factory.mktemp('baseline')
  fields = {'optimizer.learning_rate': 1e-2, 'optimizer.warmup_steps': 1}
  config = _config(root, 'baseline_test', num_steps=2, **fields)
  tiny_run.train(config, root, workdir)
  return workdir


@pytest.fixture(scope='module')
def fitted(root, baseline, tmp_path_factory):
  """The RETROfit of it, and its last state."""
  workdir = tmp_path_factory.mktemp('fitted')
  config = _config(root, retrofit_from=baseline)
  return workdir, tiny_run.train(config, root, workdir)[0]


@functools.partial(jax.jit, static_argnames='model')
def _apply(model, params, *args):
  return model.apply({'params': params}, *args)


def _equal(a, b):
  jax.tree.map(np.testing.assert_array_equal, a, b)


def _new(params):
  names = ('encoder', 'encoder_embedding', 'layer_1_cca', 'layer_2_cca')
  return {name: params[name] for name in names}


def test_the_decoder_is_the_baseline_bit_for_bit(root, baseline, fitted):
  """Its parameters and its logits, before, during and after the training."""
  old = language_model.load(baseline)
  tokens = np.random.default_rng(0).integers(0, 300, (2, 14), np.int32)
  shape = (2, 3, 2, tiny_data.R)
  neighbors = np.ones(shape, np.int32)
  wanted = _apply(old.model, old.params, tokens)
  workdir, state = fitted
  fit = language_model.load(workdir)
  during = checkpoints.load_params(str(workdir), step=2)[0]
  config = _config(root, retrofit_from=baseline)
  task = retro_task.make_task(config, fit.data)
  program = program_lib.make_program(task, config, devices=jax.devices()[:1])
  with program.context():
    before = program.init(jax.random.key(0)).params
  seen = set()
  for params in (before, during, fit.params, state.params):
    assert set(params) == {*old.params, *_new(params)}
    _equal({name: params[name] for name in old.params}, old.params)
    np.testing.assert_array_equal(_apply(fit.model, params, tokens), wanted)
    hidden = _apply(fit.model, params, tokens, neighbors, neighbors == 0)
    np.testing.assert_array_equal(hidden, wanted)
    on = _apply(fit.model, params, tokens, neighbors)
    assert (on != wanted).any()
    seen.add(float(on.sum()))
  assert len(seen) == 3  # The last two are the same.
  for a, b in zip(
    jax.tree.leaves(_new(before)), jax.tree.leaves(_new(during)), strict=True
  ):
    assert (a != b).any()


@pytest.mark.slow
def test_a_killed_run_continues_bit_for_bit(root, baseline, fitted, tmp_path):
  """Even when the baseline is gone."""
  workdir, whole = fitted
  shutil.copytree(workdir, tmp_path / 'run')
  shutil.rmtree(tmp_path / 'run' / 'checkpoints' / str(STEPS))
  assert checkpoints.find(str(tmp_path / 'run')).step == 2
  config = _config(root, retrofit_from=tmp_path / 'gone')
  state, _ = tiny_run.train(config, root, tmp_path / 'run')
  _equal(state.params, whole.params)
  _equal(state.opt_state, whole.opt_state)


@pytest.mark.slow
def test_a_shared_table_is_frozen_and_a_lookup_fits_it(root, baseline):
  fields = {'share_embeddings': True, 'encoder_d_model': 32}
  model = {'copy_init': True, **fields}
  config = _config(root, model=model, retrofit_from=baseline)
  task = retro_task.make_task(config, retro_data.DataFolder(root))
  params = task.init(jax.random.key(0))
  old = language_model.load(baseline).params
  assert 'encoder_embedding' not in params and task.frozen('embedding')
  _equal({name: params[name] for name in old}, old)
  # Head 0 writes six embeddings' size along orthonormal rows.
  written = params['encoder']['layer_1_attn']['attention']['o'][:16]
  size = 6 * np.asarray(old['embedding']).std()
  np.testing.assert_allclose(np.linalg.norm(written, axis=1), size, rtol=1e-4)
  # Queries were orthogonal before they were fitted to the decoder.
  queries = np.asarray(params['layer_1_cca']['cca']['attention']['q'][:, :16])
  square = queries.T @ queries
  assert np.abs(square - np.diag(np.diag(square))).max() > 0.1 * square.max()


def test_training_goes_on_from_the_weights_of_a_run(root, fitted):
  data = retro_data.DataFolder(root)
  workdir, state = fitted
  for arg, left_out in (('test', {}), ('baseline_test', _new(state.params))):
    config = _config(root, arg, start_from=workdir)
    params = retro_task.make_task(config, data).init(jax.random.key(1))
    assert set(params) == {*state.params} - {*left_out}
    _equal(params, {name: state.params[name] for name in params})


def test_a_baseline_gets_retrieval_and_all_is_trained(root, baseline):
  task = retro_task.make_task(
    _config(root, start_from=baseline), retro_data.DataFolder(root)
  )
  old = language_model.load(baseline).params
  params = task.init(jax.random.key(0))
  _equal({name: params[name] for name in old}, old)
  assert task.frozen is None and _new(params)


def test_other_models_are_refused(root, baseline, fitted):
  data, run = retro_data.DataFolder(root), fitted[0]
  for arg, model, fields, said in (
    ('test', {'d_ff': 48}, {'retrofit_from': baseline}, 'd_ff'),
    ('test', {}, {'retrofit_from': run}, 'is a RETRO itself'),
    ('baseline_test', {}, {'retrofit_from': baseline}, 'nothing would be'),
    ('test', {'encoder_d_model': 32}, {'start_from': run}, 'config.start_from'),
    (
      *('test', {}),
      {'start_from': run, 'retrofit_from': baseline},
      'config.start_from',
    ),
  ):
    config = _config(root, arg, model, **fields)
    with pytest.raises(ValueError, match=said):
      retro_task.make_task(config, data).init(jax.random.key(0))


def test_the_index_is_known_without_opening_it(root):
  data = retro_data.DataFolder(root)
  task = retro_task.make_task(_config(root), data)
  assert not (root / 'index').exists()
  made_with = data.neighbors('train').store.fields
  assert task.index_version == made_with['index'] == 'none'


def test_another_tokenizer_of_equal_size_is_refused(baseline, tmp_path):
  other = tiny_data.make(tmp_path, num_documents=20)
  assert retro_data.DataFolder(other).tokens.vocab_size == 300
  with pytest.raises(
    ValueError, match='trained with tokenizer .* but the data'
  ):
    language_model.load(baseline, str(other))
