# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Loading, damage, saves that die half way, the best step, and refusals."""

import re
import shutil

import grain
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
import numpy as np
import pytest

from experiments.engine import checkpoint_writer, metric_writer, program
from retrieval.nn import sharding
from retrieval.store import checkpoints, packed
from tests.retrieval.store import other_writer, tiny_stores


def _batches():
  return iter(grain.MapDataset.range(64).repeat().batch(2).to_iter_dataset())


def _state(step):
  params = {'layer': {'kernel': jnp.full((8, 4), float(step))}}
  return program.TrainState(
    jnp.int32(step), params, {'mu': params}, jax.random.key(step)
  )


def _open(folder, index_version='v1', keep=2, best='', mode='min', **pipeline):
  return checkpoint_writer.Checkpoints(
    str(folder),
    config={'model': {'layers': [1, 2]}, 'empty': {}, 'none': None},
    pipeline={'dataset': 'abc', 'batch_size': 2} | pipeline,
    index_version=index_version,
    fingerprints={'tokenizer': 't1'},
    keep=keep,
    best_metric=best,
    best_mode=mode,
  )


def _names(folder):
  return {p.name for p in (folder / 'checkpoints').iterdir()}


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


def test_keeps_the_newest_or_all(folder, tmp_path):
  assert _names(folder) == {'2', '3'}
  with _open(tmp_path, keep=0) as saver:
    for step in (1, 2, 3):
      saver.save(step, _state(step), _batches())
  assert _names(tmp_path) == {'1', '2', '3'}


def test_half_written_step_is_passed_over_and_removed(tmp_path):
  half = tmp_path / 'checkpoints' / '.saving-4.orbax-checkpoint-tmp'
  (half / 'state').mkdir(parents=True)
  (half / 'state' / 'd').write_bytes(b'half')
  (tmp_path / 'checkpoints' / '.removing-2').mkdir()
  with _open(tmp_path) as saver:
    assert saver.latest_step() is None
  assert not _names(tmp_path)
  with pytest.raises(FileNotFoundError, match='no checkpoint of any step.$'):
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


@pytest.mark.parametrize(
  'changed, match',
  [
    ({'batch_size': 4}, 'pipeline.batch_size: 2 -> 4'),
    ({'num_workers': 3}, 'pipeline.num_workers: None -> 3'),
    ({'index_version': 'v2'}, "index_version: 'v1' -> 'v2'"),
  ],
)
def test_other_data_are_refused(folder, changed, match):
  with _open(folder, **changed) as saver:
    with pytest.raises(ValueError, match=match):
      saver.restore(_abstract(), _batches())


def test_other_shapes_are_named(folder):
  abstract = _abstract()
  abstract.params['layer']['kernel'] = jax.ShapeDtypeStruct((16, 8), np.float32)
  with _open(folder) as saver:
    with pytest.raises(ValueError, match=r"'kernel'.*\(8, 4\).*\(16, 8\)"):
      saver.restore(abstract, _batches())


@pytest.mark.parametrize('damage', ['flip', 'cut', 'remove', 'rename', 'swap'])
def test_each_damaged_file_ends_in_one_line(folder, tmp_path, damage):
  run = shutil.copytree(folder, tmp_path / 'run')
  step = run / 'checkpoints' / '3'
  kept = sorted(x for x in step.rglob('*') if x.is_file())
  assert {'_CHECKPOINT_METADATA', 'process_0-of-1.json', 'checksums.json'} <= {
    x.name for x in kept
  }
  for file in kept:
    data = file.read_bytes()
    other = run / 'checkpoints' / '2' / file.relative_to(step)
    if not data and damage in ('flip', 'cut'):
      continue
    if damage == 'flip':
      tiny_stores.flip(file, len(data) // 2)
    elif damage == 'cut':
      file.write_bytes(data[:-1])
    elif damage == 'remove':
      file.unlink()
    elif damage == 'rename':
      file.rename(file.with_name('other'))
    elif not other.exists() or other.read_bytes() == data:
      continue
    else:
      shutil.copyfile(other, file)
    with _open(run) as saver, pytest.raises(ValueError) as caught:
      saver.restore(_abstract(), _batches())
    message = str(caught.value)
    assert str(step) in message and '\n' not in message
    with pytest.raises(ValueError, match=re.escape(message)):
      checkpoints.load_params(str(run))
    (file.with_name('other')).unlink(missing_ok=True)
    file.write_bytes(data)
  assert checkpoints.find(str(run)).step == 3


def test_a_save_that_fails_leaves_the_earlier_steps(tmp_path, monkeypatch):
  def full(path, step):
    raise RuntimeError('RESOURCE_EXHAUSTED:\n no space')

  with _open(tmp_path) as saver:
    saver.save(1, _state(1), _batches())
  monkeypatch.setattr(checkpoints, 'seal', full)
  with pytest.raises(OSError, match='3: not saved.*no space'):
    with _open(tmp_path) as saver:
      saver.save(3, _state(3), _batches())
  assert _names(tmp_path) == {'1'}
  assert checkpoints.find(str(tmp_path)).step == 1


@pytest.mark.parametrize('mode, best', [('min', 2), ('max', 1)])
def test_the_best_step_stays(tmp_path, mode, best):
  values = {1: 3.0, 2: 1.0, 3: float('nan'), 4: 2.0, 5: 2.0}

  def save(*steps):
    with _open(tmp_path, keep=1, best='valid/loss', mode=mode) as saver:
      for step in steps:
        saver.save(step, _state(step), _batches())
        with metric_writer.MetricWriter(tmp_path, resume_step=step) as writer:
          writer.write(step, {'valid/loss': values[step]})
        saver.measured()

  save(1, 2, 3)
  (tmp_path / 'checkpoints' / 'best.json').unlink()  # made again
  save(4, 5)
  assert _names(tmp_path) == {str(best), '5', 'best.json'}
  assert checkpoints.find(str(tmp_path), step='best').step == best
  with _open(tmp_path, keep=1) as saver:  # without a metric
    saver.save(6, _state(6), _batches())
  assert _names(tmp_path) == {str(best), '6', 'best.json'}
  shutil.rmtree(tmp_path / 'checkpoints' / str(best))
  with pytest.raises(FileNotFoundError, match=r'checkpoint best.*\[6\]'):
    checkpoints.find(str(tmp_path), step='best')
  (tmp_path / 'checkpoints' / 'best.json').write_text('{')
  with pytest.raises(ValueError, match='best.json'):
    with _open(tmp_path, keep=1):
      pass


def test_parameters_are_not_saved_into_a_run_at_work(tmp_path):
  with other_writer.refuses(tmp_path):
    checkpoint_writer.save_params(str(tmp_path), {}, config={})


def test_names_that_are_no_steps_are_passed_over(folder, tmp_path):
  run = shutil.copytree(folder, tmp_path / 'run')
  for name in ('007', 'latest', '9.tmp', '٣'):
    (run / 'checkpoints' / name).mkdir()
  assert checkpoints.find(str(run)).step == 3
  with pytest.raises(FileNotFoundError, match=r'checkpoint 7.*\[2, 3\]'):
    checkpoints.find(str(run), step=7)
  (run / 'checkpoints' / '2').rename(run / 'checkpoints' / '5')
  with pytest.raises(ValueError, match='5: holds checkpoint 2, renamed'):
    checkpoints.find(str(run))
  with pytest.raises(ValueError, match="'bets': expected a step's number"):
    checkpoints.find(str(run), step='bets')


def test_a_packed_model_is_not_trained_into(tmp_path):
  (tmp_path / packed.WEIGHTS).write_text('{}')
  with pytest.raises(ValueError, match=tmp_path.name):
    checkpoint_writer.save_params(str(tmp_path), {}, config={}, fingerprints={})
  assert [path.name for path in tmp_path.iterdir()] == [packed.WEIGHTS]
