# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Experiment configurations: values only.

FILE:ARG calls get_config(ARG). Arguments are those of `retro_variants` (RETRO) or
`set_variant` of experiments/{realm,open_qa}/config.py, or what the head names.
"""
