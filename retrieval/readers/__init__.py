# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Readers of corpora; BadRecord, a ValueError, names the place of a bad record.

FileNotFoundError names a missing file, ValueError one that cannot be read to its end,
or is not of the form that a function reads.
"""
