# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Copies of files and folders that share their bytes where the system allows."""

import os
import pathlib
import shutil


def place(old: str | os.PathLike, new: str | os.PathLike) -> None:
  """Make a second name of a file: a hard link, or a copy."""
  old = os.path.realpath(old)
  try:
    os.link(old, new)
  except OSError:  # Another file system, or one without links.
    shutil.copyfile(old, new)


def folder(source: pathlib.Path, target: pathlib.Path) -> None:
  """Make a folder of the same files: hard links, or copies."""
  shutil.copytree(source, target, copy_function=place)
