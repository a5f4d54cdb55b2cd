# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The evaluator `leakage` on a tiny model and data folder."""

import json

import numpy as np
import pytest

from experiments.retro import (
  evaluate as retro_evaluate,
  leakage as retro_leakage,
)
from tests.experiments.retro import tiny_config, tiny_retro


def test_curves_of_on_off_and_baseline(root, tmp_path, monkeypatch, capsys):
  tiny_retro.load_from(root, monkeypatch)
  evaluate = tiny_retro.evaluate_one(
    shuffled=False,
    baseline_workdir='baseline',
    evaluators=('leakage', 'bits_per_byte'),
    **{'leakage.num_neighbors': 3},
  )
  workdir, config = tmp_path / 'retro', tiny_config.of()
  retro_evaluate.evaluate(config, str(workdir), evaluate)
  content = json.loads((workdir / 'leakage.json').read_text())
  rows = {row['name']: row for row in content['rows']}
  assert list(rows) == ['RETRO, k=1', 'RETRO off', 'baseline']
  printed = capsys.readouterr().out
  usual = json.loads((workdir / 'evaluation.json').read_text())['rows']
  usual = {row['name']: row['bits_per_byte'] for row in usual}
  on = rows['RETRO, k=1']
  for name, row in rows.items():
    last = row['points'][-1]
    assert last['bits_per_byte'] == pytest.approx(usual[name], rel=1e-6)
    assert last['documents'] == 3 and last['share'] == 1
    assert f'{last["bits_per_byte"]:.4f}' in printed
    for point, best, gain in zip(
      row['points'], on['points'], row.get('minus_on', ()), strict=False
    ):
      assert gain['bits_per_byte'] == pytest.approx(
        best['bits_per_byte'] - point['bits_per_byte']
      )
  assert len(rows['baseline']['minus_on']) == 8 and 'minus_on' not in on


def test_lost_bytes_are_refused(root, monkeypatch):
  trained = tiny_retro.load_from(root, monkeypatch)['retro']
  evaluate = tiny_retro.evaluate_one(**{'leakage.num_neighbors': 3})
  tokenizer = trained.data.tokenizer
  whole = tokenizer.token_num_bytes
  lost = np.where(np.arange(len(whole)) % 5 == 0, 0, whole)
  monkeypatch.setattr(tokenizer, 'token_num_bytes', lost)
  with pytest.raises(ValueError, match='tokens'):
    retro_leakage.measure([trained], tiny_config.of(), evaluate)
