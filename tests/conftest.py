# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Eight virtual CPU devices, chosen before JAX starts; a fixture for all.

What one test compiles, another finds in a cache that lives as long as the session,
also in its other workers and in the processes that tests start.
"""

import os
import shutil
import tempfile

from tests import xla_flags

_CACHE = 'JAX_COMPILATION_CACHE_DIR'
_OWN_CACHE = (
  _CACHE not in os.environ and 'PYTEST_XDIST_WORKER' not in os.environ
)
if _OWN_CACHE:  # workers of pytest-xdist inherit it
  os.environ[_CACHE] = tempfile.mkdtemp(prefix='compiled-')
  os.environ['JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS'] = '0.2'

os.environ.setdefault('JAX_PLATFORMS', 'cpu')
os.environ['XLA_FLAGS'] = ' '.join(
  (os.environ.get('XLA_FLAGS', ''), xla_flags.devices(8))
)

from absl import flags  # noqa: E402
import jaxtyping  # noqa: E402
import pytest  # noqa: E402

# Grain's worker processes read absl flags, which pytest never parses.
flags.FLAGS.mark_as_parsed()


def pytest_unconfigure():
  """Removes the cache of the session."""
  if _OWN_CACHE:
    shutil.rmtree(os.environ[_CACHE], ignore_errors=True)


@pytest.fixture
def unchecked(monkeypatch):
  """Leaves types unchecked, as they are for users: errors are our own."""
  monkeypatch.setattr(jaxtyping.config, 'jaxtyping_disable', True)
