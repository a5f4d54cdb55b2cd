# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""RETRO and REALM, each in one file to read in one sitting; they take no flags."""
