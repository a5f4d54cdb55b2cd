# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Trained RETROs: loading, sampling, scoring and inspecting them."""
