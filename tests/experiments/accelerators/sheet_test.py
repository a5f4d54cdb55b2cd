# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The sheet of an accelerator, with tiny programs on the CPU."""

import dataclasses
import json
import os
import subprocess
import sys

import jax
import pytest

from experiments.accelerators import (
  chips,
  compile as compile_lib,
  sheet,
  sheet_rows,
)

_ROWS = {row.what: row for row in sheet_rows.ROWS}


def _tiny(what, *batches):
  row = sheet_rows.tiny(_ROWS[what])
  return dataclasses.replace(row, batches=batches or row.batches)


def _measure(row, rounds=1, chip=None):
  device = jax.devices()[0]
  chip = chip or sheet._UNKNOWN
  return sheet.measure(row, 'here', chip, device, rounds)


def test_a_batch_that_does_not_fit_gives_way_to_the_next():
  what = 'MiniLM, chunks of 128 wordpieces'
  row = _tiny(what, 8192, 512)
  large = _measure(row, rounds=0)['needed_bytes']
  chip = dataclasses.replace(chips.CHIPS['v5e'], memory=large)
  found = _measure(row, chip=chip)
  assert found['batch'] == 512 and found['needed_bytes'] < large
  assert found['predicted_sec'] > 0 and 0 < found['mfu'] < 1
  with pytest.raises(compile_lib.TooLargeError):
    _measure(row, chip=dataclasses.replace(chip, memory=1000))


def test_devices_that_are_not_there_are_predicted():
  row = _tiny('RETRO 172m, decoding of 1')
  chip = dataclasses.replace(chips.CHIPS['h100'], options={})
  found = _measure(row, rounds=0, chip=chip)
  assert 'seconds' not in found and found['predicted_sec'] > 0
  assert sheet.cells(row, found)[1:3] == ['1', 'not measured']
  assert sheet.cells(row, {'why': 'it ended'})[-1] == 'it ended'


def test_every_row_has_a_config():
  for row in sheet_rows.ROWS:
    config = sheet_rows.config_of(row, row.batches[-1])
    assert config.batch_size >= 1


@pytest.mark.parametrize(
  ('kind', 'chip'),
  [
    ('TPU v5 lite', 'v5e'),
    ('TPU v5p', 'v5p'),
    ('TPU v6 lite', 'v6e'),
    ('NVIDIA H100 80GB HBM3', 'h100'),
    ('cpu', None),
  ],
)
def test_knows_devices_by_their_names(kind, chip):
  device = type('Device', (), {'device_kind': kind})()
  assert chips.of_device(device) is (chip and chips.CHIPS[chip])


@pytest.mark.slow
def test_a_dry_run_computes_every_row(tmp_path):
  command = [sys.executable, '-m', 'experiments.accelerators.sheet']
  command += ['--dry_run', '--rounds=1', f'--workdir={tmp_path}']
  subprocess.run(command, env=os.environ | {'JAX_PLATFORMS': 'cpu'}, check=True)
  found = json.loads((tmp_path / sheet.FILE).read_text())
  assert found['rows'].keys() == _ROWS.keys()
  assert all(x.get('seconds') for x in found['rows'].values()), found['rows']
  assert len(found['parity']) == 4
  for x in found['parity']:
    limit = 1e-5 if x['dtype'] == 'float32' else 0.03
    assert x['error'] < limit * x['largest'], x
