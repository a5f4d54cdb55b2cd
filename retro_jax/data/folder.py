# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The data folder of a RETRO experiment: its stores, and search in them."""

import functools
from typing import TYPE_CHECKING

from retro_jax.data import stores

if TYPE_CHECKING:
  from retro_jax.data import datastore


class DataFolder(stores.Stores):
  """The data folder of a RETRO experiment."""

  @functools.cached_property
  def datastore(self) -> 'datastore.Datastore':
    """Search in the training chunks; training does without it."""
    from retro_jax.data import datastore

    return datastore.Datastore(self)
