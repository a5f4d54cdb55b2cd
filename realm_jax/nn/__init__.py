# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The REALM and ORQA models (Guu et al. 2020, Lee et al. 2019)."""
