# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The memory of a command that computes on a CPU: what is freed is kept.

XLA asks for a step's temporary memory anew each time, and glibc hands blocks of that
size back to the kernel, which then zeroes every page again: a tenth to a fifth of a
training step on a CPU.
"""

import ctypes
import os
import platform

from retrieval.kernels import device_files

# Of malloc.h: M_ARENA_MAX, M_MMAP_MAX and M_TRIM_THRESHOLD with their values.
_SETTINGS = ((-8, 1), (-4, 0), (-1, -1))


def keep_memory() -> bool:
  """Make malloc of this process keep freed memory, on a CPU under glibc.

  Call this function before the process has a second thread, whose own heap would
  hand memory back. The process then stays at its peak resident memory until it ends.

  Returns:
    Whether it does.
  """
  named = os.environ.get('JAX_PLATFORMS')
  on_cpu = named == 'cpu' if named else not device_files.found()
  if not on_cpu or platform.libc_ver()[0] != 'glibc':
    return False
  libc = ctypes.CDLL(None)
  return all([libc.mallopt(name, value) for name, value in _SETTINGS])
