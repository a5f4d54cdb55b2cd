# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A Ray cluster of several nodes on one machine, and data prepared while they die."""
