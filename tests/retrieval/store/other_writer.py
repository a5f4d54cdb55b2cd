# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Another writer of a folder, as its lock looks to this process."""

import contextlib
import os
import pathlib

import pytest

from retrieval.store import locks


@contextlib.contextmanager
def refuses(folder, name='.writer.lock'):
  """Expect that the body is refused to write a folder, and writes nothing."""
  folder = pathlib.Path(folder)
  folder.mkdir(parents=True, exist_ok=True)
  # A file that is opened anew has a lock of its own, even in one process.
  opened = locks._acquire(str(folder / name), folder)
  before = sorted(folder.rglob('*'))
  try:
    with pytest.raises(locks.WriterError, match='writes here') as error:
      yield
  finally:
    os.close(opened)
  assert f'{folder}: process {os.getpid()} on ' in str(error.value)
  assert sorted(folder.rglob('*')) == before
