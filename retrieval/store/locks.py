# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Locks on files (`filelock`), which the system releases when their process ends.

A leftover lock file locks nothing; that of data says who did not finish them.
"""

from collections.abc import Iterator
import contextlib
import errno
import functools
import os
import pathlib
import socket
import sys

import filelock

from retrieval.store import children, drafts

try:
  import fcntl
except ImportError:  # Windows
  fcntl = None

HAS_LOCKS = fcntl is not None

# Roles of writers: who trains in a folder, who prepares data in it.
RUN, DATA = '', 'data'

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
_PATIENCE_SEC = 1.0  # a holder may be ending
_MAX_COMMAND = 200


_Lock = functools.partial(filelock.FileLock, fallback_to_soft=False)


class WriterError(OSError):
  """Another process writes the folder; the message says which one."""


@contextlib.contextmanager
def hold(
  file: pathlib.Path, *, shared: bool = False, wait: bool = True
) -> Iterator[None]:
  """Hold a lock on a file, which is made if absent.

  A caller that does not wait goes on without it in a folder that cannot be written,
  and gets BlockingIOError when another process holds a conflicting lock.

  Args:
    shared: whether others may hold it at the same time, if theirs are shared, too.
  """
  with contextlib.ExitStack() as stack:
    if wait or os.access(file.parent, os.W_OK):
      with _refusals(file):
        if shared and fcntl is not None:
          opened = stack.enter_context(open(file, 'a'))
          fcntl.flock(opened, fcntl.LOCK_SH | (0 if wait else fcntl.LOCK_NB))
        else:
          stack.enter_context(_Lock(file, -1 if wait else 0))
    yield


@contextlib.contextmanager
def maker(path: pathlib.Path) -> Iterator[None]:
  """Wait until no other process makes a folder; check then whether it is there."""
  path.parent.mkdir(parents=True, exist_ok=True)
  file = path.with_name(f'.{path.name}.lock')
  with hold(file):
    try:
      yield
    finally:
      file.unlink(missing_ok=True)


@contextlib.contextmanager
def writer(
  folder: str | os.PathLike, role: str = RUN, process_index: int = 0
) -> Iterator[None]:
  """Be the only process that writes a folder, in one role; else WriterError.

  One process may hold the lock several times. Its first holder removes what dead
  writers left below the folder. Without write permission no lock is taken. The file
  of a lock stays where data are not finished, for `unfinished`.

  Args:
    folder: made if absent, and removed again if it stays empty.
    role: RUN, DATA, or the name of the only file that is written.
    process_index: number of a process that writes together with others.
  """
  children.exit_if_spawned_anew()
  folder = pathlib.Path(folder)
  is_new = not folder.is_dir()
  folder.mkdir(parents=True, exist_ok=True)
  if not os.access(folder, os.W_OK):
    yield
    return
  parts = ('.writer', role, str(process_index or ''))
  file = folder.resolve() / f'{"-".join(filter(None, parts))}.lock'
  lock = _Lock(file, _PATIENCE_SEC, thread_local=False, is_singleton=True)
  try:
    with _refusals(file):
      lock.acquire()
  except BlockingIOError:
    raise WriterError(
      f'{folder}: {_holder(file)} writes here; wait for its end or stop it, or name '
      'another folder.'
    ) from None
  is_over = False
  try:
    if lock.lock_counter == 1:
      with contextlib.suppress(OSError):  # a full disk
        command = ' '.join(' '.join(sys.argv).split())[:_MAX_COMMAND]
        file.write_text(f'{_this_process()} ({command})')
      drafts.remove_dead(folder)
    yield
    is_over = True
  except ValueError:  # what was asked for is refused
    is_over = True
    raise
  finally:
    with contextlib.suppress(OSError):
      if lock.lock_counter == 1 and (
        is_over or role != DATA or os.listdir(folder) == [file.name]
      ):
        file.unlink(missing_ok=True)
    lock.release()
    if is_new:
      with contextlib.suppress(OSError):  # it holds something
        folder.rmdir()


def unfinished(path: str | os.PathLike) -> str:
  """Say who writes the data around a path, or did not finish them; '' if nobody."""
  path = pathlib.Path(path).resolve()
  for folder in (path, *path.parents[:2]):
    try:
      with open(folder / f'.writer-{DATA}.lock') as file:
        holder = file.read() or 'another process'
        if fcntl is not None:
          fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
      if not holder.startswith(_this_process()):
        return f'{folder}: {holder} writes here; wait for its end.'
    except OSError:
      pass
    else:
      return f'{folder}: {holder} was interrupted; run it again, to finish.'
  return ''


def _this_process() -> str:
  return f'process {os.getpid()} on {socket.gethostname()}'


@contextlib.contextmanager
def _refusals(file: pathlib.Path) -> Iterator[None]:
  """Name the file of a lock that another process holds, or that cannot be."""
  try:
    yield
  except filelock.Timeout:
    code = errno.EWOULDBLOCK
    raise BlockingIOError(code, os.strerror(code), str(file)) from None
  except OSError as error:
    if error.errno not in _NO_LOCKS:
      raise
    text = (
      'this file system has no file locks (flock); mount it with them, or name a '
      'folder on another one'
    )
    raise OSError(error.errno, text, str(file)) from None


def _holder(file: pathlib.Path) -> str:
  try:
    return file.read_text() or 'another process'
  except (OSError, ValueError):
    return 'another process'
