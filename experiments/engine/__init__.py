# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The training loop and the parts that commands share: checkpoints, metrics, progress."""
