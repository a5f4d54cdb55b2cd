# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Files of this machine's accelerators; asking for them does not start JAX."""

import pathlib

_DEV = pathlib.Path('/dev')
_NAMES = ('nvidia[0-9]*', 'accel[0-9]*', 'vfio/[0-9]*')


def found() -> list[str]:
  """Return the files that are there."""
  return [str(path) for name in _NAMES for path in _DEV.glob(name)]
