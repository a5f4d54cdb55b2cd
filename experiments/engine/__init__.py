# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The training loop and what every command shares: checkpoints, metrics, progress."""
