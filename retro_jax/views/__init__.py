# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Prompts of a RETRO, and its samples and scores as text and HTML."""
