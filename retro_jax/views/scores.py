# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Scored texts as a table."""

import numpy as np

from retrieval import text_table
from retro_jax.views import samples


class Scores(samples.Listing):
  """Scored texts: each item has `on` and `off`, nats of each token."""

  @property
  def bits_per_byte(self) -> float:
    """Bits per byte of all texts, with retrieval if the model retrieves."""
    return self._mean('on')

  @property
  def bits_per_byte_off(self) -> float:
    """Bits per byte of all texts without neighbors."""
    return self._mean('off')

  def __repr__(self) -> str:
    """A line for each text, and one for all."""
    names = [page.name for page in self]
    lines = [Scores([page]) for page in self]
    if len(self) > 1:
      names.append('all')
      lines.append(self)
    rows = []
    for name, line in zip(names, lines, strict=True):
      count = sum(len(page.pieces) - 1 for page in line)
      means = line.bits_per_byte, line.bits_per_byte_off
      rows.append([name, f'{count:,}', *(f'{x:.4f}' for x in means)])
    heads = 'text', 'tokens', 'bits per byte', 'without neighbors'
    note = ''
    if self and all(len(page.chunks) == 1 for page in self):
      note = '\nThe first chunk of a text reads no neighbors.'
    return text_table.lines(heads, rows) + note

  def _mean(self, name: str) -> float:
    nats = sum(sum(getattr(page, name)) for page in self)
    return nats / np.log(2) / max(sum(page.num_bytes for page in self), 1)
