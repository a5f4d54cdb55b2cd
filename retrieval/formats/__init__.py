# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""File formats of other projects.

FileNotFoundError names a missing file, ValueError one that is damaged, of another form,
or a pickle that would execute something.
"""
