# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""REALM: prepare data, warm starts, pre-training, index refresh and evaluation."""
