# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Locks on files, for processes of one machine that share a folder."""

from collections.abc import Iterator
import contextlib
import os
import pathlib

try:
  import fcntl
except ImportError:  # Windows; one process prepares there.
  fcntl = None

HAS_LOCKS = fcntl is not None


@contextlib.contextmanager
def hold(
  file: pathlib.Path, *, shared: bool = False, wait: bool = True
) -> Iterator[None]:
  """Hold a lock on a file, which the system releases when the process dies.

  Does nothing where there are no locks. In a folder that cannot be written, a
  caller that does not wait goes on without a lock.

  Raises:
    PermissionError: when a caller that waits cannot write the folder.
    BlockingIOError: when another process holds a conflicting lock, unless the
      caller waits for it.
  """
  if not HAS_LOCKS or not (wait or os.access(file.parent, os.W_OK)):
    yield
    return
  with open(file, 'a') as f:
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    fcntl.flock(f, kind if wait else kind | fcntl.LOCK_NB)
    yield
