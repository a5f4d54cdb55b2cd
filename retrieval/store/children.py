# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The end of processes that a job starts: with the job, however it ends."""

from collections.abc import Sequence
import multiprocessing
from multiprocessing import resource_tracker
import multiprocessing.connection
import os
import signal
import threading
import time

_POLL_SEC = 0.5
# Time in which what a process has just created reaches Python's resource tracker,
# which removes it: shared memory and semaphores.
_GRACE_SEC = 1.0


def exit_with_parent(
  ignored: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGHUP),
) -> None:
  """End this process once its parent has ended, even if it was killed.

  Args:
    ignored: signals that a terminal sends to both, for the parent to answer; only
      Python's main thread may set this.
  """
  if threading.current_thread() is threading.main_thread():
    for number in ignored:
      signal.signal(number, signal.SIG_IGN)
  threading.Thread(
    target=_wait_for_parent, args=(os.getppid(),), daemon=True
  ).start()


def start_tracker() -> None:
  """Start the tracker that removes the shared memory of dead processes.

  If Python starts it by itself, the end of a terminal (SIGHUP) ends it first.
  """
  before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
  try:
    resource_tracker.ensure_running()  # inherits what is blocked
  finally:
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def exit_if_spawned_anew() -> None:
  """End a process that repeats its parent's main module instead of importing it.

  A module without `if __name__ == '__main__'` does so; the parent says what to do.
  """
  if getattr(multiprocessing.current_process(), '_inheriting', False):
    os._exit(1)


def _wait_for_parent(parent: int) -> None:
  process = multiprocessing.parent_process()
  if process is None:  # it is known only after the main module's imports
    while os.getppid() == parent:
      time.sleep(_POLL_SEC)
  else:
    multiprocessing.connection.wait([process.sentinel])
  time.sleep(_GRACE_SEC)
  os._exit(1)
