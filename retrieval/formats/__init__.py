# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""File formats of other projects; ValueError names a damaged file."""
