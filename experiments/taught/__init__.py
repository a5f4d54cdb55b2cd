# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Embedders of chunks taught by a language model (Shi et al. 2023)."""
