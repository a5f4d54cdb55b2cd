# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The sheet of an accelerator, with tiny programs on the CPU."""

import dataclasses
import os
import pathlib
import subprocess
import sys
import textwrap

import jax
import numpy as np
import pytest

from experiments.accelerators import (
  chips,
  compile as compile_lib,
  programs,
  sheet,
  sheet_parity,
  sheet_rows,
)

_ROOT = pathlib.Path(__file__).resolve().parents[3]
_ROWS = {row.what: row for row in sheet_rows.ROWS}
_SIZES = {'num_layers': 1, 'd_model': 24, 'd_ff': 24, 'num_heads': 2}
_EMBEDDER = {f'embedder.{name}': x for name, x in _SIZES.items()}
_ENCODER = {f'encoder.{name}': x for name, x in _SIZES.items()}


def _tiny(what, *batches, **changes):
  row = _ROWS[what]
  fields = {**row.fields, **changes.pop('fields', {})}
  return dataclasses.replace(
    row, batches=batches, fields=fields, torch=None, **changes
  )


def _rows():
  realm = {
    **_EMBEDDER,
    **_ENCODER,
    'layout.num_candidates': 2,
    'layout.query_length': 16,
    'blocks.max_length': 32,
  }
  return [
    _tiny('RETRO 172m, step', 2, config='retro_published:test'),
    _tiny('RETRO 172m, decoding of 1', 1, config='retro_published:test'),
    _tiny('MiniLM, chunks of 128 wordpieces', 512, fields=_EMBEDDER),
    _tiny('REALM, step', 2, fields=realm),
    _tiny('13,353,718 vectors searched, k = 5', 3),
  ]


def _measure(row, rounds=1, chip=None):
  device = jax.devices()[0]
  chip = chip or sheet._UNKNOWN
  return sheet.measure(row, 'here', chip, device, rounds)


@pytest.mark.slow
@pytest.mark.parametrize('row', _rows(), ids=lambda row: row.what)
def test_measures_every_kind_of_program(row, monkeypatch):
  monkeypatch.setattr(programs, '_NUM_BLOCKS', 5000)
  found = _measure(row, rounds=2)
  assert found['seconds'] > 0 and found['units_per_sec'] > 0
  assert found['batch'] == row.batches[0]
  assert 'predicted_sec' not in found  # of an unknown chip
  assert len(sheet.cells(row, found)) == len(sheet.HEADS)


def test_a_batch_that_does_not_fit_gives_way_to_the_next():
  what = 'MiniLM, chunks of 128 wordpieces'
  row = _tiny(what, 8192, 512, fields=_EMBEDDER)
  large = _measure(row, rounds=0)['needed_bytes']
  chip = dataclasses.replace(chips.CHIPS['v5e'], memory=large)
  found = _measure(row, chip=chip)
  assert found['batch'] == 512 and found['needed_bytes'] < large
  assert found['predicted_sec'] > 0 and 0 < found['mfu'] < 1
  with pytest.raises(compile_lib.TooLargeError):
    _measure(row, chip=dataclasses.replace(chip, memory=1000))


def test_devices_that_are_not_there_are_predicted():
  row = _tiny('RETRO 172m, decoding of 1', 1, config='retro_published:test')
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
def test_models_meet_the_oracles_here():
  errors = {
    (x['model'], x['dtype']): x['error'] / x['largest']
    for x in sheet_parity.measure(jax.devices()[0])
  }
  assert len(errors) == 4
  for (_, dtype), error in errors.items():
    assert error < (1e-5 if dtype == 'float32' else 0.03)
  assert np.isfinite(list(errors.values())).all()


_BARE = """
  import importlib.machinery as machinery
  import sys

  BAD = {
    'array_record', 'filelock', 'grain', 'rapidfuzz', 'regex', 'safetensors', 'scann', 'sentencepiece',
    'sentencex', 'tensorboardX', 'tensorflow', 'tensorflow_datasets', 'tokenizers',
    'xxhash',
  }

  class Finder(machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
      if name.partition('.')[0] in BAD:
        return None
      return machinery.PathFinder.find_spec(name, path, target)

  finders = [Finder if x is machinery.PathFinder else x for x in sys.meta_path]
  sys.meta_path[:] = finders
  import dataclasses
  import jax
  from experiments.accelerators import sheet, sheet_rows

  assert 'grain' in sheet.absent.MISSING
  row = dataclasses.replace(
    sheet_rows.ROWS[0], config='retro_published:test', batches=(1,)
  )
  device = jax.devices()[0]
  found = sheet.measure(row, 'here', sheet._UNKNOWN, device, 1)
  assert found['seconds'] > 0, found
  assert len(sheet.sheet_parity.measure(device)) == 4
  sheet.reports.write_json(sys.argv[1], found)
"""


@pytest.mark.slow
def test_runs_without_the_packages_of_the_data_pipeline(tmp_path):
  file = tmp_path / 'found.json'
  subprocess.run(
    [sys.executable, '-c', textwrap.dedent(_BARE), str(file)],
    env=os.environ | {'PYTHONPATH': str(_ROOT), 'JAX_PLATFORMS': 'cpu'},
    cwd=_ROOT,
    check=True,
  )
  assert file.exists()
