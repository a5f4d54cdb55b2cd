# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Names of files and folders that are being written, before they are renamed.

A draft of NAME is `.NAME.draft-HOST-BOOT-NAMESPACE-PID-RANDOM` beside it, so that
two writers never share one, and those of dead writers are known. BOOT and NAMESPACE
tell apart the processes of machines and of containers that share a host's name.
"""

import functools
import os
import pathlib
import re
import secrets
import shutil
import socket
import time

_DRAFT = re.compile(r'\..*\.draft-(\w+-\w+-\d+)-(\d+)-[0-9a-f]{8}')
_BOOT = pathlib.Path('/proc/sys/kernel/random/boot_id')
_MAX_NAME = 40
# A draft of another host that nobody has written to for so long is dead.
_LONG_SEC = 24 * 3600


def beside(path: pathlib.Path) -> pathlib.Path:
  """Return a new name for what will be renamed to `path`."""
  name = path.name[:_MAX_NAME]
  number = f'{os.getpid()}-{secrets.token_hex(4)}'
  return path.with_name(f'.{name}.draft-{_place()}-{number}')


def remove_dead(folder: str | os.PathLike, *, recursive: bool = True) -> None:
  """Remove the drafts in a folder, and below it, whose writers are dead."""
  for parent, folders, files in os.walk(folder):
    for name in (*folders, *files):
      if _is_dead(os.path.join(parent, name)):
        _remove(os.path.join(parent, name))
    if not recursive:
      break


def is_alive(pid: int) -> bool:
  """Return whether this machine has a process of this number."""
  try:
    os.kill(pid, 0)
  except (ProcessLookupError, OverflowError):
    return False
  except PermissionError:
    pass
  return True


@functools.cache
def _place() -> str:
  """Name the host and its process numbers, which containers have of their own."""
  host = re.sub(r'\W', '_', socket.gethostname(), flags=re.ASCII)[:_MAX_NAME]
  try:
    space = os.stat('/proc/self/ns/pid').st_ino
  except OSError:
    space = 0
  try:
    boot = _BOOT.read_text()[:8]
  except OSError:
    boot = ''
  return f'{host or "host"}-{boot or 0}-{space}'


def _is_dead(path: str) -> bool:
  found = _DRAFT.fullmatch(os.path.basename(path))
  if not found:
    return False
  place, pid = found.groups()
  if place == _place():
    return not is_alive(int(pid))
  try:
    return time.time() - os.lstat(path).st_mtime > _LONG_SEC
  except OSError:  # renamed meanwhile
    return False


def _remove(path: str) -> None:
  shutil.rmtree(path, ignore_errors=True)
  try:
    os.unlink(path)
  except OSError:  # removed, or not ours to remove
    pass
