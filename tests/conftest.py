# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Eight virtual CPU devices, little time in the compiler; a fixture for all.

Both are chosen before JAX starts. Each program runs a few times, so optimising it
costs more than it gains.
"""

import os

os.environ.setdefault('JAX_PLATFORMS', 'cpu')
_FLAGS = (
  '--xla_force_host_platform_device_count=8',
  '--xla_backend_optimization_level=0',
  '--xla_llvm_disable_expensive_passes=true',
)
os.environ['XLA_FLAGS'] = ' '.join((os.environ.get('XLA_FLAGS', ''), *_FLAGS))

from absl import flags  # noqa: E402
import jaxtyping  # noqa: E402
import pytest  # noqa: E402

# Grain's worker processes read absl flags, which pytest never parses.
flags.FLAGS.mark_as_parsed()


@pytest.fixture
def unchecked(monkeypatch):
  """Leaves types unchecked, as they are for users: errors are our own."""
  monkeypatch.setattr(jaxtyping.config, 'jaxtyping_disable', True)
