# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of experiments/realm/fits.py."""

import jax
import pytest

from configs import realm_pretrain_quickstart
from experiments.realm import fits
from realm_jax.data import examples
from realm_jax.nn import config as config_lib
from retrieval import memory
from retrieval.nn import bert

_BERT = bert.BertConfig(vocab_size=100, d_model=64, d_ff=128, num_heads=2)


@pytest.fixture
def config(monkeypatch):
  monkeypatch.setattr(memory, 'device_bytes', lambda devices: 1 << 30)
  return realm_pretrain_quickstart.get_config('test')


@pytest.mark.parametrize(
  ('candidates', 'batch', 'message'),
  [
    (3, 8, ''),
    (100_000, 8, r'^config\.layout\.num_candidates=100000: expected at most '),
    (2, 10**6, r'^config\.batch_size=1000000: expected at most \d'),
  ],
)
def test_refuses_what_no_step_can_hold(config, candidates, batch, message):
  config.batch_size = batch
  layout = examples.Layout(
    query_length=32, block_length=48, num_candidates=candidates
  )
  model = config_lib.RealmConfig(
    embedder=_BERT, encoder=_BERT, projection_size=8
  )
  device = jax.devices()[:1]
  if not message:
    fits.check_candidates(config, layout, model, device)
    return
  with pytest.raises(ValueError, match=message):
    fits.check_candidates(config, layout, model, device)


def test_microbatches_and_parts_need_less(config):
  config.batch_size = 64
  device = jax.devices()[:1]
  with pytest.raises(ValueError, match='expected at most 32: '):
    fits.check_rows(config, 1 << 25, devices=device)
  fits.check_rows(config, 1 << 25, parts=2, devices=device)
  config.optimizer.accumulate_steps = 2
  fits.check_rows(config, 1 << 25, devices=device)
