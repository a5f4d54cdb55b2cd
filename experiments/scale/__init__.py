# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""What a corpus of a given size would take, predicted from measured rates."""
