# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A public decoder, as it is, with passages in its prompt (Ram et al. 2023)."""
