# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Weights of public decoders, as parameters of a RETRO without retrieval."""
