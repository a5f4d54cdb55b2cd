# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Processes and their shared memory end with a parent that is killed."""

import os
import pathlib
import signal
import subprocess
import sys
import time

_PARENT = """
import multiprocessing
import signal
import time

import child
from retrieval.store import children

if __name__ == '__main__':
  children.start_tracker()
  assert signal.SIGHUP not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
  multiprocessing.get_context('spawn').Process(target=child.main).start()
  time.sleep(60)
"""
_CHILD = """
import os
import signal
import time
from multiprocessing import shared_memory

from retrieval.store import children

def main():
  children.exit_with_parent()
  os.kill(os.getpid(), signal.SIGINT)  # is for the parent
  block = shared_memory.SharedMemory(create=True, size=8)
  print(os.getpid(), block.name, flush=True)
  time.sleep(60)
"""


def _exists(pid):
  try:
    os.kill(pid, 0)
  except ProcessLookupError:
    return False
  return True


def test_nothing_outlives_a_killed_parent(tmp_path):
  (tmp_path / 'parent.py').write_text(_PARENT)
  (tmp_path / 'child.py').write_text(_CHILD)
  parent = subprocess.Popen(
    [sys.executable, tmp_path / 'parent.py'],
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,  # of the resource tracker
    text=True,
    start_new_session=True,
  )
  with parent:
    pid, name = parent.stdout.readline().split()
    block = pathlib.Path('/dev/shm', name)
    there = block.exists() or not block.parent.exists()
    os.killpg(parent.pid, signal.SIGHUP)  # reaches all three
    parent.send_signal(signal.SIGKILL)
  deadline = time.monotonic() + 5
  while (_exists(int(pid)) or block.exists()) and time.monotonic() < deadline:
    time.sleep(0.05)
  assert there
  assert not _exists(int(pid)) and not block.exists()
