# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Flags of XLA under which tests run, here and in the processes they start."""

# Each program runs a few times: optimising it costs more than it gains. Runs that
# must be equal bit for bit must be compiled alike.
FAST = (
  '--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true '
  '--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1'
)


def devices(number: int) -> str:
  """Flags for so many virtual CPU devices."""
  return f'{FAST} --xla_force_host_platform_device_count={number}'
