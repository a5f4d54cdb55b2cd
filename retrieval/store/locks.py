# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Locks on files, which the kernel releases when their process dies.

They are flock's. Over NFS, Linux turns them into byte-range locks of the server,
which all its clients see (since Linux 2.6.12; not with the mount options nolock or
local_lock=flock); a crashed client's are released when its lease ends, or when it
starts again. Lustre needs the mount option flock. Some FUSE file systems lock on
one host only.
"""

from collections.abc import Iterator
import contextlib
import errno
import functools
import json
import os
import pathlib
import socket
import sys
import threading
import time

from absl import logging

from retrieval.store import drafts

try:
  import fcntl
except ImportError:  # Windows; one process prepares there.
  fcntl = None

HAS_LOCKS = fcntl is not None

# Roles of writers: who trains in a folder, who prepares data in it.
RUN, DATA = '', 'data'

_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
# Time in which a new holder writes its name over that of a dead one.
_PATIENCE_SEC, _POLL_SEC = 1.0, 0.05
_MAX_COMMAND = 200


class WriterError(OSError):
  """Another process writes the folder; the message says which one."""


@contextlib.contextmanager
def hold(
  file: pathlib.Path, *, shared: bool = False, wait: bool = True
) -> Iterator[None]:
  """Hold a lock on a file, which the system releases when the process dies.

  Does nothing where there are no locks, but for one warning. In a folder that cannot be written, a
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
    try:
      fcntl.flock(f, kind if wait else kind | fcntl.LOCK_NB)
    except OSError as error:
      if error.errno not in _NO_LOCKS:
        raise
      _warn_of_no_locks(os.fspath(file.parent), error.strerror)
    yield


@functools.cache
def _warn_of_no_locks(folder: str, why: str) -> None:
  logging.warning(
    '%s: %s; take care that no other process writes here.', folder, why
  )


class _Held:
  """Writer locks of this process: (device, inode, name) -> [file, holders]."""

  def __init__(self):
    self.guard = threading.Lock()
    self.files: dict[tuple[int, int, str], list[int]] = {}

  def forget(self) -> None:
    """Leave the locks to the parent; called in a process that it has forked."""
    for file, _ in self.files.values():
      os.close(file)
    self.__init__()


_HELD = _Held()
if hasattr(os, 'register_at_fork'):
  os.register_at_fork(after_in_child=_HELD.forget)


@contextlib.contextmanager
def writer(
  folder: str | os.PathLike, role: str = RUN, process_index: int = 0
) -> Iterator[None]:
  """Be the only process that writes a folder, in one role.

  The lock is on `<folder>/.writer[-ROLE][-INDEX].lock`, which tells who holds it;
  a killed process leaves the file, but not the lock. The lock ends with the
  process, even if processes that it started live on; in one process it may be
  held several times. The first holder removes what dead writers left below the
  folder. Where the file system has no locks, one warning says so; who may not
  write the folder goes on without a lock.

  Args:
    folder: made if absent, and removed again if it stays empty.
    role: RUN, DATA, or the name of the file that is written; writers in
      different roles write different files.
    process_index: number of a process that writes together with others.

  Raises:
    WriterError: when another process has the lock.
  """
  is_new = not os.path.isdir(folder)
  os.makedirs(folder, exist_ok=True)
  if not os.access(folder, os.W_OK):
    yield
    return
  parts = ('.writer', role, str(process_index or ''))
  name = '-'.join(part for part in parts if part)
  file = os.path.join(os.path.abspath(folder), f'{name}.lock')
  identity = os.stat(folder)
  key = (identity.st_dev, identity.st_ino, name)
  with _HELD.guard:
    first = key not in _HELD.files
    if first:
      _HELD.files[key] = [_acquire(file, folder), 0]
    _HELD.files[key][1] += 1
  try:
    if first:
      drafts.remove_dead(folder)
    yield
  finally:
    with _HELD.guard:
      held = _HELD.files.get(key)  # None in a fork
      if held:
        held[1] -= 1
        if not held[1]:
          _release(_HELD.files.pop(key)[0], file, is_new)


def _acquire(file: str, folder: str | os.PathLike) -> int:
  """Open and lock a file, and write into it who has done so."""
  while True:
    opened = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
      _lock(opened, file, folder)
      if _is_at(opened, file):
        return _sign(opened)
    except BaseException:
      os.close(opened)
      raise
    os.close(opened)  # the holder before has removed it


def _is_at(opened: int, file: str) -> bool:
  """Whether an open file still has its name.

  A lock brings what an NFS client knows of the open file up to date, but not what
  it knows of names; on the holder's own client the names are right.
  """
  try:
    found = os.fstat(opened)
    return found.st_nlink > 0 and os.path.samestat(found, os.stat(file))
  except OSError as error:
    if error.errno in (errno.ENOENT, errno.ESTALE):
      return False
    raise


def _sign(opened: int) -> int:
  """Write into a locked file who holds it."""
  mine = {
    'host': socket.gethostname(),
    'pid': os.getpid(),
    'command': ' '.join(' '.join(sys.argv).split())[:_MAX_COMMAND],
    'since': time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime()),
  }
  with contextlib.suppress(OSError):  # a full disk
    os.ftruncate(opened, 0)
    os.pwrite(opened, f'{json.dumps(mine)}\n'.encode(), 0)
  return opened


def _lock(opened: int, file: str, folder: str | os.PathLike) -> None:
  deadline = time.monotonic() + _PATIENCE_SEC
  while HAS_LOCKS:
    try:
      return fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
      if error.errno in _NO_LOCKS:
        return _warn_of_no_locks(os.fspath(folder), error.strerror)
      if error.errno not in (errno.EAGAIN, errno.EACCES):
        raise OSError(error.errno, error.strerror, file) from None
    holder, is_known = _holder(opened)
    if is_known or time.monotonic() > deadline:
      raise WriterError(
        f'{folder}: {holder} writes here; wait for its end or stop it, or name '
        'another folder.'
      )
    time.sleep(_POLL_SEC)


def _holder(opened: int) -> tuple[str, bool]:
  """Describe the holder of a writer lock; whether it surely is the one named."""
  try:
    found = json.loads(os.pread(opened, 1 << 16, 0))
    here = found['host'] == socket.gethostname()
    return (
      f'process {found["pid"]} on {found["host"]} ({found["command"]}, since '
      f'{found["since"]})',
      here and drafts.is_alive(found['pid']),
    )
  except (OSError, ValueError, LookupError, TypeError):
    return 'another process', False


def _release(opened: int, file: str, is_new: bool) -> None:
  with contextlib.suppress(OSError):
    os.unlink(file)
  if HAS_LOCKS:
    with contextlib.suppress(OSError):
      fcntl.flock(opened, fcntl.LOCK_UN)
  os.close(opened)
  if is_new:
    with contextlib.suppress(OSError):  # it holds something
      os.rmdir(os.path.dirname(file))
