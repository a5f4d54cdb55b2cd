# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Eight virtual CPU devices, chosen before JAX starts; a fixture for all."""

import os

from tests import xla_flags

os.environ.setdefault('JAX_PLATFORMS', 'cpu')
os.environ['XLA_FLAGS'] = ' '.join(
  (os.environ.get('XLA_FLAGS', ''), xla_flags.devices(8))
)

from absl import flags  # noqa: E402
import jaxtyping  # noqa: E402
import pytest  # noqa: E402

# Grain's worker processes read absl flags, which pytest never parses.
flags.FLAGS.mark_as_parsed()


@pytest.fixture
def unchecked(monkeypatch):
  """Leaves types unchecked, as they are for users: errors are our own."""
  monkeypatch.setattr(jaxtyping.config, 'jaxtyping_disable', True)
