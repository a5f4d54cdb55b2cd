# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Programs that are timed on the device that is there."""

import importlib
import json
import subprocess
import sys

from absl import flags
from absl.testing import flagsaver
import jax
import pytest

from experiments.accelerators import compile as compile_lib, programs, sheet


@pytest.fixture
def options():
  if 'dry_run' not in flags.FLAGS:
    flags.DEFINE_bool('dry_run', False, '')
  with flagsaver.flagsaver(dry_run=False):
    flags.FLAGS.mark_as_parsed()
    yield


def test_a_batch_that_does_not_fit_gives_way_to_the_next(options, monkeypatch):
  tried = []

  def measure(row, batch, device):
    tried.append(batch)
    if batch > 8:
      raise compile_lib.TooLargeError('more than there is')
    return {'batch': batch}

  monkeypatch.setattr(sheet, '_measure', measure)
  row, device = sheet.ROWS['RETRO 425m, step'], jax.devices()[0]
  assert sheet.measure(row, device) == {'batch': 8} and tried == [32, 16, 8]
  monkeypatch.setattr(sheet, '_measure', lambda *x: 1 / 0)
  assert sheet.measure(row, device)['rate'].startswith('ZeroDivisionError')


def test_rows_name_configs_and_programs():
  assert len(sheet.ROWS) == 6
  for row in sheet.ROWS.values():
    module = importlib.import_module(f'configs.{row.config}')
    for variant in (row.variant, row.test):
      config = module.get_config(variant)
      assert row.program in programs.TASKS[config.task]


@pytest.mark.slow
def test_a_dry_run_times_every_row(tmp_path):
  command = [sys.executable, '-m', 'experiments.accelerators.sheet']
  command += ['--dry_run', f'--workdir={tmp_path}']
  subprocess.run(command, check=True)
  found = json.loads((tmp_path / sheet.FILE).read_text())
  assert all(found[name]['seconds'] > 0 for name in sheet.ROWS), found
