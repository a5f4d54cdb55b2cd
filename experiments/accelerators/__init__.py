# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Programs compiled for absent TPUs and GPUs, and their memory and time."""
