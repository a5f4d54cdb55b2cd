# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Loading parameters alone, saves that die half way, and the two refusals."""

import grain
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
import numpy as np
import pytest

from experiments.engine import checkpoint_writer, program
from retrieval.nn import sharding
from retrieval.store import checkpoints


def _batches():
  return iter(grain.MapDataset.range(64).repeat().batch(2).to_iter_dataset())


def _state(step):
  params = {'layer': {'kernel': jnp.full((8, 4), float(step))}}
  return program.TrainState(
    jnp.int32(step), params, {'mu': params}, jax.random.key(step)
  )


def _open(folder, index_version='v1', **pipeline):
  return checkpoint_writer.Checkpoints(
    str(folder),
    config={'model': {'layers': [1, 2]}, 'empty': {}, 'none': None},
    pipeline={'dataset': 'abc', 'batch_size': 2} | pipeline,
    index_version=index_version,
    fingerprints={'tokenizer': 't1'},
  )


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  folder = tmp_path_factory.mktemp('run')
  batches = _batches()
  with _open(folder) as saver:
    for step in (1, 2, 3):
      next(batches)
      saver.save(step, _state(step), batches)
  return folder


def _abstract():
  one = jax.sharding.SingleDeviceSharding(jax.devices()[0])
  return jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=one), _state(0)
  )


def test_restores_state_and_place(folder):
  batches = _batches()
  with _open(folder) as saver:
    assert saver.latest_step() == 3
    state = saver.restore(_abstract(), batches)
  np.testing.assert_array_equal(next(batches), [6, 7])
  assert int(state.step) == 3
  assert float(state.params['layer']['kernel'][0, 0]) == 3.0
  assert state.rng == jax.random.key(3)


def test_keeps_the_newest(folder):
  steps = {p.name for p in (folder / 'checkpoints').iterdir()}
  assert steps == {'2', '3'}


def test_half_written_step_is_passed_over(tmp_path):
  half = tmp_path / 'checkpoints' / '4.orbax-checkpoint-tmp'
  (half / 'state').mkdir(parents=True)
  (half / 'state' / 'd').write_bytes(b'half')
  with _open(tmp_path) as saver:
    assert saver.latest_step() is None
  with pytest.raises(FileNotFoundError, match='a checkpoint, found none'):
    checkpoints.load_params(str(tmp_path))


def test_load_params_on_one_device_and_on_a_mesh(folder):
  params, saved = checkpoints.load_params(str(folder))
  kernel = params['layer']['kernel']
  assert list(params) == ['layer'] and saved.step == 3
  assert saved.config.model.layers == (1, 2)
  assert saved.config.empty.to_dict() == {} and saved.config.none is None
  assert saved.fingerprints == {'tokenizer': 't1'}
  assert saved.params['layer']['kernel'].shape == kernel.shape
  assert kernel.devices() == {jax.devices()[0]}

  mesh = sharding.make_mesh(1, 4, 2)
  spread = jax.sharding.NamedSharding(mesh, P('fsdp', 'tensor'))
  params, saved = checkpoints.load_params(
    str(folder), step=2, shardings={'layer': {'kernel': spread}}
  )
  kernel = params['layer']['kernel']
  assert saved.step == 2 and float(kernel[0, 0]) == 2.0
  assert kernel.addressable_shards[0].data.shape == (2, 2)


def test_absent_step_is_named(folder):
  with pytest.raises(FileNotFoundError, match=r'checkpoint 7.*\[2, 3\]'):
    checkpoints.load_params(str(folder), step=7)


@pytest.mark.parametrize(
  'changed, match',
  [
    ({'batch_size': 4}, 'pipeline.batch_size: 2 -> 4'),
    ({'dataset': 'abd'}, "pipeline.dataset: 'abc' -> 'abd'"),
    ({'num_workers': 3}, 'pipeline.num_workers: None -> 3'),
    ({'index_version': 'v2'}, "index_version: 'v1' -> 'v2'"),
  ],
)
def test_other_data_are_refused(folder, changed, match):
  with _open(folder, **changed) as saver:
    with pytest.raises(ValueError, match=match):
      saver.restore(_abstract(), _batches())
