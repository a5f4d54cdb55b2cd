# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Freed memory is used again without page faults, in its own process."""

import platform
import subprocess
import sys

import pytest

_SCRIPT = """
import resource
import numpy as np
from experiments.engine import command
def faults():
  np.ones(50_000_000)
  before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
  np.ones(50_000_000)
  return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
left = faults()
assert command.keep_memory()
print(left, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != 'glibc', reason='glibc only')
def test_keep_memory():
  result = subprocess.run(
    [sys.executable, '-c', _SCRIPT], check=True, capture_output=True, text=True
  )
  left, kept = map(int, result.stdout.split())
  assert left > 100
  assert kept < 10
