# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Measured differences in the files of docs/results/evidence.

Raw values are arrays of an .npz file, named FILE:ARRAY: [seeds, items], or [items]
of a seed. Those beside an array `bytes`, [items], are nats, and count as bits per byte.
An interval of a JSON file is named by the file and a path of keys, such as
['rows', 'name=k2', 'minus', 'k1']; FIELD=VALUE chooses an item of a list.
"""

from collections.abc import Mapping, Sequence
import json
import math
import pathlib
from typing import Any

import numpy as np

from experiments.tables import intervals

_HALF = 1.96  # of a 95 % interval, in standard errors


def difference(
  folder: pathlib.Path, entry: Mapping[str, Any]
) -> intervals.Estimate:
  """Estimate a difference over items and seeds.

  Args:
    entry: raw values `row` and `less`, FILE:ARRAY each; or `file` and `at` of an
      interval over items. {seed} in a file stands for each of `seeds`, if there are some.
      `less_seeds`: those seeds of `less` that `row` has, if it has fewer.
      `trained`: False where an interval has no seeds.

  Raises:
    ValueError: for raw values of other items or seeds.
  """

  def files(name):
    return [
      folder / name.replace('{seed}', str(x)) for x in entry.get('seeds', [''])
    ]

  if 'file' in entry:
    values = [_interval(x, entry['at']) for x in files(entry['file'])]
    return _join(values, entry.get('trained', True))
  differences = []
  sides = [entry[x].partition(':')[::2] for x in ('row', 'less')]
  for row_file, less_file in zip(*(files(x) for x, _ in sides), strict=True):
    row, weights = _raw(row_file, sides[0][1])
    less, others = _raw(less_file, sides[1][1])
    if 'less_seeds' in entry:
      less = less[entry['less_seeds']]
    if row.shape != less.shape or not np.array_equal(weights, others):
      raise ValueError(
        f'{entry["row"]} {row.shape} and {entry["less"]} {less.shape}: '
        'expected values of the same items, and as many seeds of each.'
      )
    differences.append(row - less)
  return intervals.of_values(np.atleast_2d(np.squeeze(differences)), weights)


def _raw(file: pathlib.Path, array: str) -> tuple[np.ndarray, np.ndarray]:
  """Values and the weights of their items."""
  size = f'{array.rpartition("/")[0]}/bytes'.lstrip('/')
  with np.load(file) as arrays:
    values = arrays[array].astype(np.float64)
    if size not in arrays:
      return values, np.ones(values.shape[-1])
    return values, arrays[size] * math.log(2)


def _interval(file: pathlib.Path, at: Sequence[str]) -> Mapping[str, Any]:
  """The object at a path: mean (or bits_per_byte), low, high, perhaps of_seeds."""
  content = json.loads(file.read_text(encoding='utf-8'))
  for key in at:
    if isinstance(content, list):
      field, _, value = key.partition('=')
      content = next(x for x in content if str(x.get(field)) == value)
    else:
      content = content[key]
  return content


def _join(values, trained) -> intervals.Estimate:
  """Join intervals over items: one with its seeds, or one for each seed."""
  # The items are the same for each seed, so the mean varies with them as one does.
  of_items = np.mean(
    [((x['high'] - x['low']) / 2 / _HALF) ** 2 for x in values]
  )
  means = [x.get('mean', x.get('bits_per_byte')) for x in values]
  seeds = values[0].get('of_seeds') if len(values) == 1 else means
  seeds = (seeds or means) if trained else ()
  return intervals.combine(float(np.mean(means)), float(of_items), seeds)
