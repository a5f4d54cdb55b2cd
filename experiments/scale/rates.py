# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The rates that the cost model multiplies: rates.json beside this module.

A rate is measured on a machine by a command, or compiled: the bound that the roofline
of a compiler sets. Coefficients of a fit are rates, too.
"""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import itertools
import os
import pathlib
from typing import Literal

import numpy as np

from experiments.engine import reports
from retrieval.store import manifests

FILE = pathlib.Path(__file__).with_suffix('.json')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rate:
  """One rate."""

  value: float
  unit: str
  source: Literal['measured', 'compiled']
  machine: str  # that was measured, or that the compiler compiled for
  command: str  # that measured or compiled it
  note: str = ''  # how it was measured; the error of a fit


Rates = Mapping[str, Rate]


def load(path: str | os.PathLike = FILE) -> dict[str, Rate]:
  """Read a file of rates.

  Raises:
    ValueError: for a file of another form.
  """
  content = manifests.read_object(pathlib.Path(path))
  try:
    return {name: Rate(**fields) for name, fields in content.items()}
  except TypeError as error:
    raise ValueError(
      f'{path}: {error}; expected the file of experiments.scale.measure.'
    ) from None


def save(path: str | os.PathLike, rates: Rates) -> None:
  """Write a file of rates, by name."""
  fields = {name: dataclasses.asdict(rates[name]) for name in sorted(rates)}
  reports.write_json(path, fields)


def fit(
  features: Sequence[Sequence[float]], seconds: Sequence[float]
) -> tuple[list[float], float]:
  """Fit seconds as a sum of features, none of which takes negative time.

  Args:
    features: [cases][n].
    seconds: [cases]; their relative errors are made small.

  Returns:
    coefficients: [n] seconds for a unit of each feature.
    error: the largest relative error of a case.
  """
  scaled = np.asarray(features, np.float64) / np.asarray(seconds)[:, None]
  best, least = np.zeros(scaled.shape[1]), np.inf
  for chosen in _subsets(range(scaled.shape[1])):
    found = np.zeros(scaled.shape[1])
    ones = np.ones(len(scaled))
    found[chosen] = np.linalg.lstsq(scaled[:, chosen], ones, rcond=None)[0]
    error = float(np.square(scaled @ found - 1).sum())
    if (found >= 0).all() and error < least:
      best, least = found, error
  return best.tolist(), float(np.abs(scaled @ best - 1).max())


def _subsets(items: Iterable[int]) -> Iterable[list[int]]:
  items = list(items)
  for size in range(1, len(items) + 1):
    yield from map(list, itertools.combinations(items, size))
