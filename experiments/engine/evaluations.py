# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables of evaluations: values of each item, totals, and differences of rows.

An evaluation writes NAME.json with the totals of each row, and NAME.npz with the
values of each item: arrays [items], or [seeds, items], named by row and measure.
`experiments.compare` reads such tables, and writes one with the differences of all
pairs of rows; rows of one name are its seeds.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import math
import os
import pathlib
from typing import Any

import numpy as np

from experiments.engine import reports
from retrieval.questions import bootstrap


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
  """The values of items by one model, or by the seeds of one."""

  name: str
  # measure, '' for the only one -> [items] or [seeds, items]
  values: Mapping[str, np.ndarray]
  # [items] UTF-8 bytes: values are nats and totals bits per byte; None: means
  num_bytes: np.ndarray | None = None
  facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # as JSON

  @property
  def weights(self) -> np.ndarray | None:
    """Weights of items in an interval; None for equal ones."""
    return None if self.num_bytes is None else self.num_bytes * math.log(2)

  def _totals(self, values: np.ndarray) -> list[float]:
    size = values.shape[-1]
    if self.num_bytes is not None:
      size = math.log(2) * self.num_bytes.sum()
    return (np.atleast_2d(values).sum(-1) / size).tolist()

  def of_seeds(self, measure: str = '') -> list[float]:
    """Return the total of each seed."""
    return self._totals(self.values[measure])

  def check_items(self, other: 'Row') -> None:
    """Raise ValueError unless both rows measure the same items."""
    one, two = (
      {name: x.shape[-1] for name, x in row.values.items()}
      for row in (self, other)
    )
    if one != two or not np.array_equal(self.num_bytes, other.num_bytes):
      raise ValueError(
        f'Rows {self.name} and {other.name} are of different items.'
      )

  def minus(self, other: 'Row', measure: str = '') -> dict[str, Any]:
    """Return the difference of the totals: mean, low, high, and `of_seeds`.

    The interval is that of a paired bootstrap over the items, whose values are the
    means of the seeds. Seeds are paired by their number; a single one goes with each.

    Raises:
      ValueError: for other items, or another number of seeds, unless it is one.
    """
    self.check_items(other)
    one, two = (np.atleast_2d(x.values[measure]) for x in (self, other))
    if len(one) != len(two) and 1 not in (len(one), len(two)):
      raise ValueError(
        f'Row {self.name} has {len(one)} runs and {other.name} {len(two)}: '
        'expected as many seeds of each, or one.'
      )
    interval = bootstrap.bootstrap(one.mean(0) - two.mean(0), self.weights)
    return {**dataclasses.asdict(interval), 'of_seeds': self._totals(one - two)}


def write(
  path: str | os.PathLike, rows: Sequence[Row], **content: Any
) -> pathlib.Path:
  """Write totals of rows and `content` as JSON, and values of items as .npz."""
  facts = [{'name': row.name, **row.facts} for row in rows]
  path = reports.write_json(path, {'rows': facts, **content})
  arrays = {
    ', '.join(filter(None, (row.name, measure))): values
    for row in rows
    for measure, values in row.values.items()
  }
  if arrays and rows[0].num_bytes is not None:
    arrays['bytes'] = rows[0].num_bytes
  if arrays:
    reports.write_arrays(path.with_suffix('.npz'), arrays)
  return path
