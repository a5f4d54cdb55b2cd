# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""One exact search over the devices of two processes."""

import os
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest

from retrieval import searchers
from tests import free_port, xla_flags

_TIMEOUT_SEC = 120


class _Rows(np.ndarray):
  """Rows that count how many of them were read in slices."""

  read = 0

  def __getitem__(self, key):
    found = super().__getitem__(key)
    if isinstance(key, slice):
      _Rows.read += len(found)
    return found


def _search(address, number, workdir, metric, resident):
  """Search in one of two processes."""
  jax.config.update('jax_platforms', 'cpu')
  jax.distributed.initialize(address, 2, number)
  rows = np.load(workdir / 'rows.npy').view(_Rows)
  queries = np.load(workdir / 'queries.npy')[number::2]
  here = searchers.ExactSearcher(rows, metric, resident_bytes=resident)
  alone = here.search(queries, 7)
  _Rows.read = 0
  shared = here.over(jax.devices())
  found = shared.search(queries, 7)
  for a, b in zip(alone, found, strict=True):
    np.testing.assert_array_equal(a, b)
  if resident:  # Half of the rows are kept here.
    assert 0.4 < _Rows.read / len(rows) < 0.6
    held = shared._blocks_on_device[0].rows.addressable_shards
    assert len(held) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
  ('metric', 'resident'), [('dot_product', 1 << 30), ('squared_l2', 0)]
)
def test_two_processes_search_as_one(tmp_path, metric, resident):
  """One process has queries with more ties than its first pass keeps."""
  rng = np.random.default_rng(0)
  rows = rng.standard_normal((30_000, 16)).astype(np.float32)
  rows[1000:1200] = rows[3]
  queries = rng.standard_normal((10, 16)).astype(np.float32)
  queries[4] = 9 * rows[3]
  np.save(tmp_path / 'rows.npy', rows)
  np.save(tmp_path / 'queries.npy', queries)
  address = free_port.address()
  given = {'XLA_FLAGS': xla_flags.devices(2)}
  processes = []
  for number in range(2):
    arguments = [address, str(number), str(tmp_path), metric, str(resident)]
    with open(tmp_path / f'log.{number}', 'w') as log:
      argv = [sys.executable, __file__, *arguments]
      process = subprocess.Popen(argv, env=os.environ | given, stderr=log)
      processes.append(process)
  for number, process in enumerate(processes):
    process.wait(timeout=_TIMEOUT_SEC)
    errors = (tmp_path / f'log.{number}').read_text()
    assert process.returncode == 0, errors[-3000:]


if __name__ == '__main__':
  _, found, one, folder, kind, kept = sys.argv
  _search(found, int(one), pathlib.Path(folder), kind, int(kept))
