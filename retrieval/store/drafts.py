# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Files and folders that are being written, before they are renamed.

A draft of NAME is `.NAME.draft-HOST-PID-RANDOM` beside it: two writers never share one,
and those of writers that died on this host are known.
"""

from collections.abc import Iterator
import contextlib
import os
import pathlib
import re
import secrets
import shutil
import socket

_DRAFT = re.compile(r'\..*\.draft-(\w+)-(\d+)-[0-9a-f]{8}')
_MAX_NAME = 40


def beside(path: pathlib.Path) -> pathlib.Path:
  """Return a new name for the draft of `path`."""
  number = f'{os.getpid()}-{secrets.token_hex(4)}'
  return path.with_name(f'.{path.name[:_MAX_NAME]}.draft-{_host()}-{number}')


def remove_dead(folder: str | os.PathLike, *, recursive: bool = True) -> None:
  """Remove drafts in and below a folder if their writers died on this host."""
  for parent, folders, files in os.walk(folder):
    for name in (*folders, *files):
      path = pathlib.Path(parent, name)
      if _is_dead(path) and path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
      elif _is_dead(path):
        path.unlink(missing_ok=True)
    if not recursive:
      break


def _host() -> str:
  return re.sub(r'\W', '_', socket.gethostname(), flags=re.ASCII)[:_MAX_NAME]


def _is_dead(path: pathlib.Path) -> bool:
  draft = _DRAFT.fullmatch(path.name)
  if not draft or draft[1] != _host():
    return False
  try:
    os.kill(int(draft[2]), 0)
  except ProcessLookupError:
    return True
  except OSError:  # it lives, as another user's
    pass
  return False


@contextlib.contextmanager
def folder(path: pathlib.Path) -> Iterator[pathlib.Path]:
  """Yield a new folder; it gets the name `path` once the body has filled it."""
  draft = beside(path)
  draft.mkdir(parents=True)
  try:
    yield draft
    os.rename(draft, path)
  finally:
    shutil.rmtree(draft, ignore_errors=True)
