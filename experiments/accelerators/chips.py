# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Accelerators by name: their devices for the compiler, and what they can do.

A topology is CHIP:SHAPE, for TPUs the torus ('v5e:4x4'), for GPUs their number, eight
a host, or HOSTSxDEVICES ('h100:64', 'h100:8x8'). The compilers are installed apart:
`pip install -e '.[tpu-compile]'` and `'.[gpu-compile]'`, each in an environment of
its own.
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chip:
  """A device, as its maker describes it."""

  platform: str  # 'tpu' or 'cuda'
  flops: float  # bfloat16, a second
  memory: float  # bytes
  bandwidth: float  # of memory, bytes a second
  # Of the links to other chips that one mesh axis uses, bytes a second and direction.
  network: float
  options: dict[str, Any] = dataclasses.field(
    default_factory=dict
  )  # of the compiler


def _chip(
  platform: str,
  tflops: float,
  gib: float,
  tb_a_second: float,
  gb_a_second: float,
  **options: Any,
) -> Chip:
  """Build a chip from its usual units."""
  return Chip(
    platform=platform,
    flops=1e12 * tflops,
    memory=2**30 * gib,
    bandwidth=1e12 * tb_a_second,
    network=1e9 * gb_a_second,
    options=options,
  )


CHIPS = {
  'v4': _chip('tpu', 275, 32, 1.2, 90),
  'v5e': _chip('tpu', 197, 15.75, 0.82, 100),
  'v5p': _chip('tpu', 459, 95, 2.77, 200),
  'v6e': _chip('tpu', 918, 31.25, 1.64, 200),
  # Autotuning would run on the device.
  'h100': _chip('cuda', 989, 79.1, 3.35, 450, xla_gpu_autotune_level=0),
}

# Part of `jax.Device.device_kind` -> chip.
_KINDS = {
  'v5 lite': CHIPS['v5e'],
  'v5e': CHIPS['v5e'],
  'v6': CHIPS['v6e'],
  'v5': CHIPS['v5p'],
  'v4': CHIPS['v4'],
  'h200': _chip('cuda', 989, 139.7, 4.8, 450),
  'h100': CHIPS['h100'],
}


def of(topology: str) -> Chip:
  """Return the chip of a topology.

  Raises:
    ValueError: for another one.
  """
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
  found = (chip for words, chip in _KINDS.items() if words in kind)
  return next(found, None)


def is_installed(topology: str) -> bool:
  """Whether the compiler of a topology is installed."""
  package, _ = _COMPILERS[of(topology).platform]
  return importlib.util.find_spec(package) is not None


def devices(topology: str) -> list[jax.Device]:
  """Return the devices of a topology, for programs to be compiled, not run.

  Raises:
    ValueError: for an unknown topology.
    ImportError: when its compiler is not installed.
  """
  chip, shape = of(topology), topology.partition(':')[2]
  if not is_installed(topology):
    extra = _COMPILERS[chip.platform][1]
    raise ImportError(
      f"--topology={topology}: needs its compiler; pip install -e '.[{extra}]' in an "
      'environment of its own.'
    )
  jax.config.update('jax_platforms', 'cpu')  # of this process itself
  if chip.platform == 'tpu':
    # No metadata server is asked, and other processes may compile, too.
    os.environ['TPU_SKIP_MDS_QUERY'] = '1'
    os.environ.setdefault('TPU_WORKER_HOSTNAMES', 'localhost')
    os.environ.setdefault('ALLOW_MULTIPLE_LIBTPU_LOAD', '1')
    given = {'topology_name': topology}
  else:
    os.environ['JAX_SKIP_CUDA_CONSTRAINTS_CHECK'] = '1'  # there is no driver
    hosts = _hosts(shape)
    given = {
      'topology_name': f'1x{hosts}',
      'topology': f'1x{hosts}',
      'target_config': _H100.read_text(),
    }
  try:
    found = topologies.get_topology_desc(platform=chip.platform, **given)
  except Exception as error:
    line = ' '.join(str(error).split())[:200]
    raise ValueError(f'--topology={topology}: {line}') from error
  return list(found.devices)


def _hosts(shape: str) -> str:
  """Return HOSTSxDEVICES, at most eight devices a host."""
  if not shape.isdecimal():
    return shape
  count = int(shape)
  return f'{count // 8}x8' if count > 8 and count % 8 == 0 else f'1x{count}'
