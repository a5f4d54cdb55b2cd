# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Keeps the memory of one step for the next, on a CPU under glibc.

XLA asks for a step's temporary memory anew each time, and glibc hands blocks of
that size back to the kernel, which then zeroes every page again: a fifth of a
small model's training step on a CPU.
"""

import ctypes
import platform

# Of malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_M_ARENA_MAX = -8


def keep_memory() -> bool:
  """Makes malloc of this process keep what is freed.

  Call it before the first JAX computation. The process then stays at its peak
  resident memory until it ends.

  Returns:
    Whether it took effect: False without glibc.
  """
  if platform.libc_ver()[0] != 'glibc':
    return False
  libc = ctypes.CDLL(None)
  settings = ((_M_ARENA_MAX, 1), (_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, -1))
  return all([libc.mallopt(name, value) for name, value in settings])
