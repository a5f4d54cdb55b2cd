# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Measured values in results files, and copies of these files without the rest.

A value of a JSON file is named by the file and a path of keys to an object that holds
it, such as ['rows', 'name=k2', 'minus', 'k1']; FIELD=VALUE chooses an item of a list.
Raw values are arrays of an .npz file, named FILE:ARRAY: [seeds, items], or [items]
of a seed. Those beside an array `bytes`, [items], are nats, and count as
bits per byte.
"""

from collections.abc import Mapping, Sequence
import contextlib
import dataclasses
import math
import pathlib
from typing import Any

import numpy as np

from experiments.engine import reports
from experiments.tables import intervals
from retrieval.store import manifests

Path = Sequence[str]
_MEANS = (
  'mean',
  'bits_per_byte',
  'y',
)  # names of the value, in order of preference
_SEEDS = 'of_seeds', 'bits_per_byte_of_seeds'
_ENDS = 'low', 'high'
_ROUND = 16  # parts of a nat that remain
_HALF = 1.96  # of a 95 % interval, in standard errors


@dataclasses.dataclass(frozen=True)
class Value:
  """A measured value."""

  mean: float
  low: float | None = None  # ends of its 95 % interval
  high: float | None = None
  of_seeds: tuple[float, ...] = ()


def find(content: Any, at: Path) -> Any:
  """Return the value at a path of keys.

  Raises:
    KeyError: when the path leads to nothing.
  """
  for key in at:
    if isinstance(content, list):
      content = next((x for x in content if _chosen(x, key)), None)
      if content is None:
        raise KeyError(key)
    else:
      content = content[key]
  return content


def _chosen(item: Mapping[str, Any], key: str) -> bool:
  field, _, value = key.partition('=')
  return str(item.get(field)) == value


def read(
  folders: Sequence[pathlib.Path], file: str, at: Path, interval: bool = False
) -> Value | None:
  """Read a value from the first folder with the file.

  Args:
    interval: whether a value without an interval is an error.

  Returns:
    None where the file, or an item that the path names, is missing: not run.

  Raises:
    ValueError: for a file of another form.
  """
  path = next((x for x in (f / file for f in folders) if x.is_file()), None)
  if path is None:
    return None
  try:
    item = find(manifests.read_object(path), at)
    ends = [
      float(item.get(x)) for x in _ENDS if interval or item.get(x) is not None
    ]
    mean = next((item[x] for x in _MEANS if x in item), None)
    seeds = next((item[x] for x in _SEEDS if x in item), ())
    return Value(float(mean), *(ends or (None, None)), tuple(map(float, seeds)))
  except KeyError:
    return None
  except (AttributeError, TypeError, ValueError) as error:
    raise ValueError(
      f'{path}: no value at {"/".join(at)} ({error}); expected the results file '
      'of the command that docs/lab-notes/claims.md names.'
    ) from None


def places(entry: Mapping[str, Any]) -> list[tuple[str, Path]]:
  """File and path of every value of a difference; see `difference`."""
  named = [(entry['file'], entry['at'])] if 'file' in entry else []
  for name in (entry[x] for x in ('row', 'less') if x in entry):
    file, _, array = name.partition(':')
    named += [(file, [array]), (file, [_weights(array)])]
  seeds = entry.get('seeds', [''])
  return [(f.replace('{seed}', str(x)), at) for x in seeds for f, at in named]


def _weights(array: str) -> str:
  """Name of the bytes of an array's items."""
  return f'{array.rpartition("/")[0]}/bytes'.lstrip('/')


def _raw(
  folders: Sequence[pathlib.Path], file: str, array: str
) -> tuple[np.ndarray, np.ndarray] | None:
  """Values and the weights of their items; None where they are missing."""
  path = next((x for x in (f / file for f in folders) if x.is_file()), None)
  with np.load(path) if path else contextlib.nullcontext({}) as arrays:
    if array not in arrays:
      return None
    values, weights = (
      arrays[array].astype(np.float64),
      arrays.get(_weights(array)),
    )
  ones = np.ones(values.shape[-1])
  return values, ones if weights is None else weights * math.log(2)


def difference(
  folders: Sequence[pathlib.Path], entry: Mapping[str, Any]
) -> intervals.Estimate | None:
  """Estimate a difference over items and seeds.

  Args:
    entry: raw values `row` and `less`, FILE:ARRAY each; or `file` and `at` of an
      interval over items. {seed} in a file stands for each of `seeds`, if there are some.
      `less_seeds`: those seeds of `less` that `row` has, if it has fewer.
      `trained`: False where an interval has no seeds.

  Returns:
    None where something was not measured.

  Raises:
    ValueError: for files of another form, or raw values of other items or seeds.
  """
  where = places(entry)
  if 'file' in entry:
    values = [read(folders, *x, interval=True) for x in where]
    trained = entry.get('trained', True)
    return None if None in values else estimate(values, trained)
  raw = [_raw(folders, file, array) for file, (array,) in where[::2]]
  if None in raw:
    return None
  if 'less_seeds' in entry:
    raw[1::2] = [(x[entry['less_seeds']], weights) for x, weights in raw[1::2]]
  first = raw[0]
  for x in raw:
    if x[0].shape != first[0].shape or not np.array_equal(x[1], first[1]):
      raise ValueError(
        f'{entry["row"]} {first[0].shape} and {entry["less"]} {x[0].shape}: '
        'expected values of the same items, and as many seeds of each.'
      )
  pairs = zip(raw[::2], raw[1::2], strict=True)
  less = np.squeeze([row - other for (row, _), (other, _) in pairs])
  return intervals.of_values(np.atleast_2d(less), first[1])


def estimate(
  values: Sequence[Value], trained: bool = True
) -> intervals.Estimate:
  """Join intervals over items: one with its seeds, or one for each seed."""
  # The items are the same for each seed, so the mean varies with them as one does.
  of_items = np.mean([((x.high - x.low) / 2 / _HALF) ** 2 for x in values])
  means = [x.mean for x in values]
  seeds = values[0].of_seeds if len(values) == 1 else means
  seeds = (seeds or means) if trained else ()
  return intervals.combine(float(np.mean(means)), float(of_items), seeds)


def cited(content: Any, paths: Sequence[Path]) -> Any:
  """Return the content of a results file that these paths lead to."""
  if isinstance(content, list):
    items = []
    for item in content:
      chosen = [x for x in paths if x and _chosen(item, x[0])]
      fields = {x[0].partition('=')[0] for x in chosen}
      if chosen:
        named = {key: item[key] for key in item if key in fields}
        items.append(named | cited(item, [x[1:] for x in chosen]))
    return items
  fields = {}
  ends_here = not all(paths)
  for key, value in content.items():
    rest = [x[1:] for x in paths if x and x[0] == key]
    if rest:
      fields[key] = cited(value, rest)
    elif ends_here and key in (*_MEANS, *_ENDS, *_SEEDS):
      fields[key] = value
  return fields


def copy(
  source: pathlib.Path,
  target: pathlib.Path,
  cited_places: Sequence[tuple[str, Path]],
) -> None:
  """Copy the cited parts of results files between folders.

  Args:
    cited_places: file and path of every value.
  """
  for name in {file for file, _ in cited_places}:
    paths = [at for file, at in cited_places if file == name]
    if not (source / name).is_file():
      continue
    if name.endswith('.npz'):
      with np.load(source / name) as arrays:
        chosen = {x: arrays[x] for x in arrays if [x] in paths}
      for x in chosen:
        if x != _weights(x) in chosen:
          chosen[x] = np.round(_ROUND * chosen[x]).astype(np.float32) / _ROUND
      reports.write_arrays(target / name, chosen)
    else:
      content = manifests.read_object(source / name)
      reports.write_json(target / name, cited(content, paths))
