# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A corpus prepared on a Ray cluster of one machine while its nodes are killed."""
