# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Sharded stores on disk, written atomically and memory-mapped."""
