# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Freed memory is used again without page faults, in a process of its own."""

import os
import platform
import subprocess
import sys

import pytest

from experiments.engine import heap
from retrieval.kernels import device_files

# A command's process: its thread for signals starts before all else.
_SCRIPT = """
import resource, sys, threading
sys.argv[0] = sys.argv[1]
import experiments
import numpy as np
def faults():
  def fill():
    for size in (1_000_000, 50_000_000):
      np.ones(size)
  found = []
  for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    thread = threading.Thread(target=fill)
    thread.start()
    thread.join()
    found.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
  return found[1]
print(faults())
"""


def _faults(kind: str) -> int:
  result = subprocess.run(
    [sys.executable, '-c', _SCRIPT, kind],
    check=True,
    capture_output=True,
    text=True,
    env=os.environ | {'JAX_PLATFORMS': 'cpu'},
  )
  return int(result.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != 'glibc', reason='glibc only')
def test_a_command_keeps_freed_memory_in_every_thread():
  assert _faults('library') > 100
  assert _faults('-m') < 100


def test_memory_is_kept_on_cpus_alone(monkeypatch, tmp_path):
  kept = []
  monkeypatch.setattr(heap.platform, 'libc_ver', lambda: kept.append(1) or ' ')
  monkeypatch.setattr(device_files, '_DEV', tmp_path)
  (tmp_path / 'nvidia0').touch()
  for named, expected in (('cuda', 0), ('', 0), ('cpu', 1)):
    monkeypatch.setenv('JAX_PLATFORMS', named)
    heap.keep_memory()
    assert len(kept) == expected
  monkeypatch.delenv('JAX_PLATFORMS')
  (tmp_path / 'nvidia0').unlink()
  heap.keep_memory()
  assert len(kept) == 2
