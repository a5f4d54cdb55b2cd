# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The kind of backend that a program is traced for."""

import jax


def is_cpu() -> bool:
  """Whether what is traced now is for a CPU."""
  return _kind() == 'cpu'


def is_tpu() -> bool:
  """Whether what is traced now is for a TPU."""
  return 'tpu' in _kind()


def interprets_kernels() -> bool:
  """Whether TPU kernels are to be interpreted: the program is for another device."""
  return 'tpu' not in _kind()


def _kind() -> str:
  """Return the devices' kind, in lower case.

  The current mesh decides, whose devices may be those of a machine elsewhere;
  without one, the default backend does.
  """
  device = jax.sharding.get_abstract_mesh().abstract_device
  kind = jax.default_backend() if device is None else device.device_kind
  return kind.lower()
