# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Memory of a command that computes on a CPU: malloc keeps what is freed.

XLA asks for a step's temporary memory anew each time, and glibc hands such blocks
back to the kernel, which zeroes every page again: a tenth to a fifth of a step.
"""

import ctypes
import os
import platform

from retrieval.kernels import device_files

# Of malloc.h: M_ARENA_MAX, M_MMAP_MAX and M_TRIM_THRESHOLD with their values.
_SETTINGS = ((-8, 1), (-4, 0), (-1, -1))


def keep_memory() -> None:
  """Keep freed memory of this process, on a CPU under glibc, before threads start."""
  named = os.environ.get('JAX_PLATFORMS')
  on_cpu = named == 'cpu' if named else not device_files.found()
  if on_cpu and platform.libc_ver()[0] == 'glibc':
    libc = ctypes.CDLL(None)
    for name, value in _SETTINGS:
      libc.mallopt(name, value)
