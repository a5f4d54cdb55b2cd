# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The RETRO model (Borgeaud et al. 2021) and public decoders."""
