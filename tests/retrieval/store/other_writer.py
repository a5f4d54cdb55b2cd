# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Another writer of a folder, as its lock looks to this process."""

import contextlib
import pathlib

import filelock
import pytest

from retrieval.store import locks


@contextlib.contextmanager
def refuses(folder, name='.writer.lock'):
  """Expect that the body is refused to write a folder, and writes nothing."""
  folder = pathlib.Path(folder)
  folder.mkdir(parents=True, exist_ok=True)
  # A lock of its own, even in one process.
  with filelock.FileLock(folder / name):
    (folder / name).write_text('process 1 on another host')
    before = sorted(folder.rglob('*'))
    with pytest.raises(locks.WriterError) as error:
      yield
    assert f'{folder}: process 1 on another host writes' in str(error.value)
    assert sorted(folder.rglob('*')) == before
