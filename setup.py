# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Packages of the wheel: the libraries, and the commands inside realm_retro_jax."""

import setuptools

_INSIDE = 'experiments', 'configs'
_libraries = setuptools.find_namespace_packages(
  include=['realm_jax*', 'retrieval*', 'retro_jax*']
)
_commands = setuptools.find_namespace_packages(
  include=[y for x in _INSIDE for y in (x, f'{x}.*')]
)
setuptools.setup(
  packages=[
    *_libraries,
    'realm_retro_jax',
    *(f'realm_retro_jax.{x}' for x in _commands),
  ],
  package_dir={
    'realm_retro_jax': 'experiments/console',
    **{f'realm_retro_jax.{x}': x for x in _INSIDE},
  },
)
