# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Files of this machine's accelerators; asking for them does not start JAX."""

import pathlib

_DEV, _PCI = pathlib.Path('/dev'), pathlib.Path('/sys/bus/pci/devices')
_GPUS = ('nvidia[0-9]*', 'dxg')  # dxg: in the Linux of Windows
_TPUS = ('accel[0-9]*', 'vfio/[0-9]*')  # names that other hardware has, too
_GOOGLE = '0x1ae0'


def paths() -> list[str]:
  """Return the device files of accelerators on this machine."""
  vendors = (file.read_text().strip() for file in _PCI.glob('*/vendor'))
  names = _GPUS + (_TPUS if _GOOGLE in vendors else ())
  return [str(path) for name in names for path in _DEV.glob(name)]
