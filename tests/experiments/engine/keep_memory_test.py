# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Freed memory is used again without page faults, in its own process."""

import platform
import subprocess
import sys

import pytest

_SCRIPT = """
import resource, sys
import numpy as np
from experiments.engine import command
if sys.argv[1] == 'keep':
  assert command.keep_memory()
def faults():
  return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
np.ones(50_000_000)
before = faults()
np.ones(50_000_000)
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != 'glibc', reason='glibc only')
def test_keep_memory():
  def faults(mode):
    result = subprocess.run(
      [sys.executable, '-c', _SCRIPT, mode],
      check=True,
      capture_output=True,
      text=True,
    )
    return int(result.stdout)

  assert faults('keep') < 10
  assert faults('leave') > 100
