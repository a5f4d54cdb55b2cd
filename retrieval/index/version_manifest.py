# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""What an index version says of itself: its step, and what it was made from."""

from collections.abc import Mapping
import json
import pathlib
from typing import Any

from retrieval.store import store

SCHEMA = 1
FILE = 'version.json'


def write(path: pathlib.Path, *, step: int, params: str, blocks: str) -> None:
  """Writes the step, and the fingerprints of parameters and blocks."""
  fields = {'schema': SCHEMA, 'step': step, 'params': params, 'blocks': blocks}
  text = json.dumps(fields, indent=1, sort_keys=True) + '\n'
  store.write_atomically(path / FILE, text.encode())


def read(path: pathlib.Path) -> Mapping[str, Any]:
  """A version's step, and the fingerprints of its parameters and blocks.

  Raises:
    FileNotFoundError: when there is no version.
    ValueError: when it is damaged.
  """
  file = path / FILE
  try:
    manifest = json.loads(file.read_text())
  except FileNotFoundError:
    raise FileNotFoundError(
      f'{path}: no index version here ({FILE} is missing).'
    ) from None
  except ValueError as e:
    raise ValueError(f'{file}: not JSON ({e}).') from None
  missing = {'schema', 'step', 'blocks', 'params'} - set(manifest)
  if missing or manifest['schema'] != SCHEMA:
    raise ValueError(
      f'{file}: not a version of schema {SCHEMA} (missing: {sorted(missing)}).'
    )
  return manifest
