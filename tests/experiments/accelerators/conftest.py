# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Devices that stand for chips."""

import jax
import pytest

from experiments.accelerators import chips


@pytest.fixture
def here(monkeypatch):
  """This machine's CPU devices as two chips."""
  monkeypatch.setattr(chips, 'devices', lambda topology: jax.devices()[:2])
