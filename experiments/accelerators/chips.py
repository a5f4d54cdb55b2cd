# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Accelerators by name: devices for the compiler, and peak rates.

A topology is CHIP:SHAPE, for TPUs the torus ('v5e:4x4'), for GPUs their number, eight
a host, or HOSTSxDEVICES ('h100:64', 'h100:8x8').
"""

import dataclasses
import importlib.util
import os
import pathlib
from typing import Any

import jax
from jax.experimental import topologies

# Platform -> package of the compiler, and our extra that installs it.
_COMPILERS = {
  'tpu': ('libtpu', 'tpu-compile'),
  'cuda': ('jax_cuda13_plugin', 'gpu-compile'),
}
_H100 = pathlib.Path(__file__).with_name('h100.txtpb')
_GIB = 2**30
# Older compilers would tune on the device; newer ones tune without it, and untuned
# they refuse some products.
_UNTUNED = (
  {'xla_gpu_autotune_level': 0} if jax.__version_info__ < (0, 11) else {}
)


@dataclasses.dataclass(frozen=True)
class Chip:
  """A device, as its maker describes it."""

  platform: str  # 'tpu' or 'cuda'
  flops: float  # bfloat16, a second
  memory: float  # bytes
  bandwidth: float  # of memory, bytes a second
  # of the compiler
  options: dict[str, Any] = dataclasses.field(default_factory=dict)


CHIPS = {
  'v4': Chip('tpu', 275e12, 32 * _GIB, 1.2e12),
  'v5e': Chip('tpu', 197e12, 15.75 * _GIB, 0.82e12),
  'v5p': Chip('tpu', 459e12, 95 * _GIB, 2.77e12),
  'v6e': Chip('tpu', 918e12, 31.25 * _GIB, 1.64e12),
  'h100': Chip('cuda', 989e12, 79.1 * _GIB, 3.35e12, _UNTUNED),
}

# Part of `jax.Device.device_kind` -> chip.
_KINDS = {
  'v5 lite': CHIPS['v5e'],
  'v5e': CHIPS['v5e'],
  'v6': CHIPS['v6e'],
  'v5': CHIPS['v5p'],
  'v4': CHIPS['v4'],
  'h200': Chip('cuda', 989e12, 139.7 * _GIB, 4.8e12),
  'h100': CHIPS['h100'],
}


def of(topology: str) -> Chip:
  """Return the chip of a topology; ValueError for another one."""
  name = topology.partition(':')[0]
  if name not in CHIPS or ':' not in topology:
    raise ValueError(
      f'--topology={topology!r}: expected CHIP:SHAPE, such as v5e:4x4 or h100:8, of '
      f'{sorted(CHIPS)}.'
    )
  return CHIPS[name]


def of_device(device: jax.Device) -> Chip | None:
  """Return the chip of a device that is there; None for an unknown one."""
  kind = device.device_kind.lower()
  return next((chip for words, chip in _KINDS.items() if words in kind), None)


def devices(topology: str) -> list[jax.Device]:
  """Return the devices of a topology, for programs to be compiled, not run.

  Raises:
    ValueError: for an unknown topology.
    ImportError: when its compiler is not installed.
  """
  chip, shape = of(topology), topology.partition(':')[2]
  package, extra = _COMPILERS[chip.platform]
  if importlib.util.find_spec(package) is None:
    raise ImportError(
      f"--topology={topology}: needs its compiler; pip install -e '.[{extra}]' in an "
      'separate environment.'
    )
  jax.config.update('jax_platforms', 'cpu')  # of this process itself
  if chip.platform == 'tpu':
    # No metadata server is asked, and other processes may compile, too.
    os.environ['TPU_SKIP_MDS_QUERY'] = '1'
    os.environ.setdefault('TPU_WORKER_HOSTNAMES', 'localhost')
    os.environ.setdefault('ALLOW_MULTIPLE_LIBTPU_LOAD', '1')
    options = {'topology_name': topology}
  else:
    os.environ['JAX_SKIP_CUDA_CONSTRAINTS_CHECK'] = '1'  # there is no driver
    if shape.isdecimal():
      count = int(shape)
      whole = count > 8 and count % 8 == 0
      shape = f'{count // 8}x8' if whole else f'1x{count}'
    options = dict.fromkeys(('topology_name', 'topology'), f'1x{shape}')
    options['target_config'] = _H100.read_text()
  try:
    topology_devices = topologies.get_topology_desc(
      platform=chip.platform, **options
    )
  except Exception as error:
    line = ' '.join(str(error).split())[:200]
    raise ValueError(f'--topology={topology}: {line}') from error
  return list(topology_devices.devices)
