# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Copying from neighbors: the start of cross-attention, its fit, and a gate."""
