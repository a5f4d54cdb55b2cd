# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Drafts of index versions: hidden folders, each filled by one builder at a time.

<root>/.building-<version>.<host>-<pid>-<random> is the draft of one builder, and
.building-<version>.together that of processes which share the work. A builder
holds a lock beside its draft as long as it lives. The next builder of the version
takes over the draft of a dead one.
"""

from collections.abc import Iterator
import contextlib
import os
import pathlib
import secrets
import shutil
import socket

from retrieval.store import locks

_START = '.building-'
_LOCK = '.lock'


@contextlib.contextmanager
def draft(
  root: pathlib.Path, version: str, together: bool = False
) -> Iterator[pathlib.Path]:
  """Yield the draft of a version, and hold its lock.

  Args:
    together: whether several processes share the draft.
  """
  prefix = f'{_START}{version}'
  with contextlib.ExitStack() as stack:
    found = root / f'{prefix}.together'
    if together:
      stack.enter_context(_held(found, shared=True))
    else:
      found = _dead(stack, root, prefix)
    if found is None:
      owner = f'{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}'
      found = root / f'{prefix}.{owner}'
      stack.enter_context(_held(found))
    found.mkdir(exist_ok=True)
    yield found


def remove_dead(root: pathlib.Path, latest: str) -> None:
  """Remove the drafts of dead builders, of versions up to `latest`."""
  for name in sorted(x.name for x in root.glob(f'{_START}*')):
    version = name.removeprefix(_START)[: len(latest)]
    if version <= latest:
      found = root / name.removesuffix(_LOCK)
      with contextlib.suppress(BlockingIOError), _held(found):
        shutil.rmtree(found, ignore_errors=True)


@contextlib.contextmanager
def _held(found: pathlib.Path, *, shared: bool = False) -> Iterator[None]:
  """Hold the lock of a draft; its file goes with the draft.

  Raises:
    BlockingIOError: when the draft's builder lives.
  """
  file = found.with_name(f'{found.name}{_LOCK}')
  with locks.hold(file, shared=shared, wait=False):
    try:
      yield
    finally:
      if not found.exists():
        file.unlink(missing_ok=True)


def _dead(
  stack: contextlib.ExitStack, root: pathlib.Path, prefix: str
) -> pathlib.Path | None:
  """Take over the draft of a dead builder, where there is one."""
  for found in sorted(root.glob(f'{prefix}*')):
    if found.suffix == _LOCK:
      continue
    with contextlib.suppress(BlockingIOError), contextlib.ExitStack() as mine:
      mine.enter_context(_held(found))
      if found.is_dir():  # not published meanwhile
        stack.enter_context(mine.pop_all())
        return found
  return None
