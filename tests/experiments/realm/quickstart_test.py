# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The quickstart of REALM, from stores to explained predictions."""

import functools
import json

import jax
import pytest

from experiments.engine import loop, metric_writer
from experiments.realm import quickstart
from retrieval.store import checkpoints
from tests.experiments.realm import tiny_realm


def test_quickstart_from_stores_to_explained_predictions(
  data, tmp_path, capsys, monkeypatch
):
  """Every stage at a tiny size; run again, nothing is trained anew."""
  train = functools.partial(loop.train, devices=jax.devices()[:1])
  monkeypatch.setattr(loop, 'train', train)
  config = tiny_realm.get_config(str(data), num_steps=4)
  wanted = quickstart.Quickstart(num_batches=1)
  sentences = (('The [MASK] stood in Paris.', 'mill'),)
  monkeypatch.setattr(quickstart, '_SENTENCES', sentences)
  quickstart.quickstart(config, str(tmp_path), wanted)
  printed = capsys.readouterr().out
  for part in ('nats a token', 'The [MASK] stood in Paris.', 'Done in'):
    assert part in printed
  assert checkpoints.find(str(tmp_path / 'mlm')).step == 4
  saved = json.loads((tmp_path / 'config.json').read_text())
  assert saved['encoder_from'] == str(tmp_path / 'mlm')
  before = metric_writer.read(tmp_path)
  quickstart.quickstart(config, str(tmp_path), wanted)
  assert metric_writer.read(tmp_path) == before


def test_a_bert_is_not_trained_to_predict_masked_words(tmp_path, monkeypatch):
  trained = []

  def train(_, workdir):
    trained.append(workdir)
    raise KeyboardInterrupt

  monkeypatch.setattr(quickstart.prepare, 'prepare', lambda *_: None)
  monkeypatch.setattr(quickstart.task, 'train', train)
  config = tiny_realm.get_config('data', **{'encoder.checkpoint': 'BERT'})
  with pytest.raises(KeyboardInterrupt):
    quickstart.quickstart(config, str(tmp_path), quickstart.Quickstart())
  assert trained == [str(tmp_path)]
