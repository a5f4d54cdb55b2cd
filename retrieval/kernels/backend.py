# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The devices that are there, and the kind that a program is traced for."""

import jax

from retrieval.kernels import device_files


def is_cpu() -> bool:
  """Whether the program being traced is for a CPU."""
  return _kind() == 'cpu'


def is_tpu() -> bool:
  """Whether the program being traced is for a TPU."""
  return 'tpu' in _kind()


def interprets_kernels() -> bool:
  """Whether kernels are to be interpreted, because the devices are CPUs.

  Apart from `is_cpu`, so that tests can ask a CPU for an accelerator's program.
  """
  return _kind() == 'cpu'


def _kind() -> str:
  """Return the devices' kind, in lower case.

  The current mesh decides, whose devices may be those of a machine elsewhere;
  without one, the default backend does.
  """
  device = jax.sharding.get_abstract_mesh().abstract_device
  kind = jax.default_backend() if device is None else device.device_kind
  return kind.lower()


def devices() -> list[jax.Device]:
  """Return `jax.devices()`.

  RuntimeError where this machine has an accelerator, but JAX has only the CPU and was
  not told so.
  """
  listed = jax.devices()
  files = device_files.paths()
  if listed[0].platform == 'cpu' and files and not jax.config.jax_platforms:
    raise RuntimeError(
      f'JAX {jax.__version__} computes on the CPU, but {files[0]} is there: its '
      'accelerator plugin is missing or of another version. Install the one that '
      'fits, or set JAX_PLATFORMS=cpu to compute on the CPU.'
    )
  return listed
