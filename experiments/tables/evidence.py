# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Measured values in results files, and copies of these files without the rest.

A value is named by a file and a path of keys to an object that holds it, such as
['rows', 'name=k2', 'minus', 'k1']; FIELD=VALUE chooses an item of a list.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import pathlib
from typing import Any

from experiments.engine import reports
from retrieval.store import manifests

Path = Sequence[str]
_MEANS = 'mean', 'bits_per_byte', 'y'  # names of the value, first found first
_SEEDS = 'of_seeds', 'bits_per_byte_of_seeds'
_ENDS = 'low', 'high'


@dataclasses.dataclass(frozen=True)
class Value:
  """A measured value."""

  mean: float
  low: float | None = None  # ends of its 95 % interval
  high: float | None = None
  of_seeds: tuple[float, ...] = ()


def find(content: Any, at: Path) -> Any:
  """Return what a path of keys leads to.

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
    found = find(manifests.read_object(path), at)
    ends = [float(found.get(x)) for x in _ENDS if interval or x in found]
    mean = next((found[x] for x in _MEANS if x in found), None)
    seeds = next((found[x] for x in _SEEDS if x in found), ())
    return Value(float(mean), *(ends or (None, None)), tuple(map(float, seeds)))
  except KeyError:
    return None
  except (AttributeError, TypeError, ValueError) as error:
    raise ValueError(
      f'{path}: no value at {"/".join(at)} ({error}); expected the results file '
      'of the command that docs/results/claims.md names.'
    ) from None


def cited(content: Any, paths: Sequence[Path]) -> Any:
  """Return the content of a results file that these paths lead to."""
  if isinstance(content, list):
    kept = []
    for item in content:
      chosen = [x for x in paths if x and _chosen(item, x[0])]
      fields = {x[0].partition('=')[0] for x in chosen}
      if chosen:
        named = {key: item[key] for key in item if key in fields}
        kept.append(named | cited(item, [x[1:] for x in chosen]))
    return kept
  kept = {}
  ends_here = not all(paths)
  for key, value in content.items():
    rest = [x[1:] for x in paths if x and x[0] == key]
    if rest:
      kept[key] = cited(value, rest)
    elif ends_here and key in (*_MEANS, *_ENDS, *_SEEDS):
      kept[key] = value
  return kept


def copy(
  source: pathlib.Path,
  target: pathlib.Path,
  places: Sequence[tuple[str, Path]],
) -> None:
  """Copy what is cited of results files between folders.

  Args:
    places: file and path of every value.
  """
  for name in {file for file, _ in places}:
    if (source / name).is_file():
      content = manifests.read_object(source / name)
      paths = [at for file, at in places if file == name]
      reports.write_json(target / name, cited(content, paths))
