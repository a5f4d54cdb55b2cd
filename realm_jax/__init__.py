# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""REALM and ORQA: language models that retrieve, then predict or answer."""
