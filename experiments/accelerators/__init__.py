# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Programs compiled for TPUs and GPUs that are not there, and what they would take."""
