# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of experiments/engine/fits.py."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import realm_pretrain_quickstart
from experiments.engine import fits, program as program_lib, tasks
from retrieval import memory
from retrieval.nn import bert

_BERT = bert.BertConfig(vocab_size=100, d_model=64, d_ff=128, num_heads=2)
_FIELD = 'config.layout.num_candidates'


@pytest.fixture
def config(monkeypatch):
  monkeypatch.setattr(memory, 'device_bytes', lambda devices: 1 << 30)
  return realm_pretrain_quickstart.get_config('test')


@pytest.mark.parametrize(
  ('length', 'batch', 'message'),
  [
    (3, 8, ''),
    (100_000, 8, r'^config\.layout\.num_candidates=100000: expected at most '),
    (2, 10**6, r'^config\.batch_size=1000000: expected at most \d'),
    (100_000, 10**9, r'^config\.batch_size=1000000000: expected smaller ones'),
  ],
)
def test_refuses_what_no_step_can_hold(config, length, batch, message):
  config.batch_size = batch
  each = bert.kept_bytes(_BERT, 64)
  device = jax.devices()[:1]

  def check(length):
    fits.check_length(
      config, _FIELD, length, lambda n: n**2 * each, devices=device
    )

  if not message:
    check(length)
    return
  with pytest.raises(ValueError, match=message) as refused:
    check(length)
  if 'candidates=' in message:
    largest = int(str(refused.value).split('at most ')[1].split(':')[0])
    check(largest)
    with pytest.raises(ValueError, match='expected at most '):
      check(largest + 1)


def test_microbatches_and_parts_need_less(config):
  config.batch_size = 64
  device = jax.devices()[:1]
  with pytest.raises(ValueError, match='expected at most 32: '):
    fits.check_rows(config, 1 << 25, devices=device)
  fits.check_rows(config, 1 << 25, parts=2, devices=device)
  config.optimizer.accumulate_steps = 2
  fits.check_rows(config, 1 << 25, devices=device)
  config.optimizer.accumulate_steps = 1
  config.mesh.update(data=1, tensor=2)  # which may cut each row
  fits.check_rows(config, 1 << 25, devices=jax.devices()[:2])


@pytest.fixture
def program(config):
  """A product of [256, 256], whose optimizer keeps two moments."""
  config.batch_size, config.optimizer.part_scales = 8, {}

  def init(key):
    return {'w': jax.random.normal(key, (256, 256))}

  def loss(params, batch, key, train):
    y = jnp.tanh(batch['x'] @ params['w'])
    return jnp.mean(y**2), {}

  task = tasks.Task(init=init, loss=loss, dataset=None)
  return program_lib.make_program(task, config, devices=jax.devices()[:1])


def test_a_state_that_does_not_fit_is_refused(program, monkeypatch):
  needed = 3 * 4 * 256**2
  monkeypatch.setattr(memory, 'device_bytes', lambda devices: needed + 64)
  fits.check_state(program)
  monkeypatch.setattr(memory, 'device_bytes', lambda devices: needed - 1)
  with pytest.raises(ValueError, match=r'parameters and their optimizer take'):
    fits.check_state(program)


def test_a_step_that_does_not_fit_is_refused(program, config, monkeypatch):
  with program.context():
    state = program.init(jax.random.key(0))
    batch = {'x': np.ones((8, 256), np.float32)}
    fits.check_step(program, config, state, batch)
    monkeypatch.setattr(memory, 'device_bytes', lambda devices: 1 << 10)
    with pytest.raises(ValueError, match=r'^config\.batch_size=8: expected '):
      fits.check_step(program, config, state, batch)
    assert program.step(state, batch)[0].step == 1
