# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Flags of XLA under which tests run, here and in the processes they start."""

from importlib import metadata

# Each program runs a few times: optimising it costs more than it gains. Runs that
# must be equal bit for bit must be compiled alike.
OPTIONS = {
  'xla_backend_optimization_level': 0,
  'xla_llvm_disable_expensive_passes': True,
}
# XLA ends at a flag that it lacks; conftest has yet to set what JAX reads.
if tuple(map(int, metadata.version('jaxlib').split('.')[:2])) < (0, 11):
  OPTIONS['xla_cpu_use_fusion_emitters'] = False
FAST = ' '.join(
  [f'--{name}={str(value).lower()}' for name, value in OPTIONS.items()]
  + ['--xla_cpu_parallel_codegen_split_count=1']
)


def devices(number: int) -> str:
  """Flags for so many virtual CPU devices."""
  return f'{FAST} --xla_force_host_platform_device_count={number}'
