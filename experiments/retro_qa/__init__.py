# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Question answering by a RETRO, its baseline or a Fusion-in-Decoder."""
