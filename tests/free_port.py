# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""An address for the coordinator of processes that a test starts."""

import socket


def address() -> str:
  """This host and a port that nobody listens on."""
  with socket.socket() as free:
    free.bind(('127.0.0.1', 0))
    return f'127.0.0.1:{free.getsockname()[1]}'
