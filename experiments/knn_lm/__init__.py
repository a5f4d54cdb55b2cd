# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""kNN-LM beside a trained RETRO or its baseline (Khandelwal et al. 2020)."""
