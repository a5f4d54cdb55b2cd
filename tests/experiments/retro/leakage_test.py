# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The leakage command on a tiny model and data folder."""

import json
import types

import numpy as np
import pytest

from experiments.retro import (
  evaluate as retro_evaluate,
  leakage as retro_leakage,
)
from retro_jax.trained import language_model
from tests.experiments.retro import tiny_trained
from tests.retro_jax.data import tiny_data


@pytest.fixture(scope='module')
def root(tmp_path_factory):
  return tiny_data.make(tmp_path_factory.mktemp('data'))


def test_curves_of_on_off_and_baseline(root, tmp_path, monkeypatch, capsys):
  trained = tiny_trained.load_from(root, monkeypatch)
  config = trained['retro'].config
  config.evaluate.max_documents = 3
  config.evaluate.shuffled = False
  config.evaluate.baseline_workdir = 'baseline'
  config.leakage.num_neighbors = 3
  workdir = tmp_path / 'retro'
  retro_leakage.run(config, str(workdir))
  content = json.loads((workdir / 'leakage.json').read_text())
  rows = {row['name']: row for row in content['rows']}
  assert list(rows) == ['RETRO, k=1', 'RETRO off', 'baseline']
  printed = capsys.readouterr().out
  retro_evaluate.run(config, str(workdir))
  usual = json.loads((workdir / 'evaluation.json').read_text())['rows']
  usual = {row['name']: row['bits_per_byte'] for row in usual}
  on = rows['RETRO, k=1']
  for name, row in rows.items():
    last = row['points'][-1]
    assert last['bits_per_byte'] == pytest.approx(usual[name], rel=1e-6)
    assert last['documents'] == 3 and last['share'] == 1
    assert f'{last["bits_per_byte"]:.4f}' in printed
    for point, best, gain in zip(
      row['points'], on['points'], row['minus_on'], strict=False
    ):
      assert gain['bits_per_byte'] == pytest.approx(
        best['bits_per_byte'] - point['bits_per_byte']
      )
  assert len(rows['baseline']['minus_on']) == 8 and on['minus_on'] == []
  assert 'reads none' in printed
  for row in rows.values():
    assert sum(point['share'] for point in row['runs']) == pytest.approx(1)
  none, *others = rows['RETRO off']['runs_minus_on']
  assert none['run'] == -1 and none['bits_per_byte'] == pytest.approx(0)
  assert any(x['bits_per_byte'] for x in others if x['chunks'])
  assert (workdir / 'leakage.png').stat().st_size > 10_000


def test_errors_come_before_the_work(root, monkeypatch):
  trained = tiny_trained.load_from(root, monkeypatch)['retro']
  trained.config.leakage.num_neighbors = 10
  with pytest.raises(ValueError, match='10 is more than the 3 stored'):
    retro_leakage.curves(trained, None, trained.config)
  trained.config.leakage.num_neighbors = 3
  measured = []
  monkeypatch.setattr(
    retro_evaluate,
    'evaluate_trained',
    lambda *args: measured.append(args) or [],
  )
  tokenizer = trained.data.tokenizer
  whole = tokenizer.token_num_bytes
  lost = np.where(np.arange(len(whole)) % 5 == 0, 0, whole)
  with monkeypatch.context() as patch:
    patch.setattr(tokenizer, 'token_num_bytes', lost)
    with pytest.raises(ValueError, match='tokens: its tokens stand'):
      retro_leakage.curves(trained, None, trained.config)
  baseline = tiny_trained.trained(root, baseline=True)
  baseline.config.model.chunk_length = 5
  with pytest.raises(ValueError, match='chunk_length is 5'):
    retro_leakage.curves(trained, baseline, trained.config)
  trained.config.evaluate.num_neighbors = ()
  with pytest.raises(ValueError, match='num_neighbors .*one or more'):
    retro_leakage.curves(trained, None, trained.config)
  assert not measured
  data = types.SimpleNamespace(
    tokenizer=object(),
    tokenizer_path='there',
    tokens=types.SimpleNamespace(check_tokenizer=lambda tokenizer: None),
  )
  with pytest.raises(ValueError, match='there.*SentencePiece and byte pairs'):
    retro_leakage._token_num_bytes(data)
  assert language_model.load('retro') is trained
