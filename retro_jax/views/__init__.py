# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Texts that go into a RETRO, and text and HTML of what comes out."""
