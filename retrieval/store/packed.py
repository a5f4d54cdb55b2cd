# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Trained models without their training: config and weights of 32 or 8 bits.

  config.json       settings of the run
  *.safetensors.gz  parameters; arrays that are equal in several parts stand once, in
                    a file of these parts
  tokenizer.json or model, and other small files
  weights.json      step, fingerprints, checksums of the files above

`checkpoints` reads such a folder like that of a training run. weights.json is written
last: where a writer was killed it does not fit, and the model is refused.
"""

import collections
from collections.abc import Callable, Collection, Iterator, Mapping
import contextlib
import dataclasses
import gzip
import itertools
import json
import os
import pathlib
from typing import Any
import zlib

from flax import traverse_util
import jax
import numpy as np
import safetensors
from safetensors import numpy as safetensors_numpy

from retrieval.store import checksums, manifests, output_files

CONFIG = 'config.json'
WEIGHTS = 'weights.json'
LEVELS = 127  # of a sign
_SCALE = ':scale'
_GZIP_LEVEL = 6
_MAX_HEADER = 1 << 24  # bytes
_ADVICE = 'install the package again, or remove the folder and pack the model'


def quantize(params: Mapping[str, Any], bits: int = 8) -> dict[str, np.ndarray]:
  """Round matrices to int8, with a scale for each column or embedding.

  Scales are float32 under path + ':scale'; vectors stay float32. No value moves
  by more than half its scale: 1/254 of the largest value of its column or embedding.
  At 32 bits nothing is rounded.
  """
  arrays = {}
  for name, value in traverse_util.flatten_dict(params, sep='/').items():
    value = np.asarray(value, np.float32)
    if value.ndim < 2 or bits == 32:
      arrays[name] = value
      continue
    # A row of a table is one token's; a kernel's inputs are its first axis.
    axis = -1 if name.endswith('embedding') else 0
    arrays[name], arrays[name + _SCALE] = round_to_levels(value, axis)
  return arrays


def round_to_levels(
  value: np.ndarray, axis: int
) -> tuple[np.ndarray, np.ndarray]:
  """Return int8 levels and the float32 scale of each slice along `axis`."""
  scale = np.abs(value).max(axis=axis, keepdims=True) / LEVELS
  levels = np.rint(value / np.where(scale > 0, scale, 1)).astype(np.int8)
  return levels, scale.astype(np.float32)


def dequantize(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
  """Return the tree of parameters, float32, from the arrays of `quantize`."""
  params = {}
  for name, value in arrays.items():
    if name.endswith(_SCALE):
      continue
    scale = arrays.get(name + _SCALE)
    value = np.asarray(value, np.float32)
    params[name] = value if scale is None else value * np.asarray(scale)
  return traverse_util.unflatten_dict(params, sep='/')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
  """Content of weights.json."""

  step: int  # of the training
  fingerprints: dict[str, str]  # of the tokenizer and data of the training
  # file of parameters -> names of the first level that have them, [''] for the whole
  parts: dict[str, list[str]]
  files: dict[str, str]  # name -> checksum
  vectors: dict[str, str] = dataclasses.field(default_factory=dict)


def is_packed(folder: str | os.PathLike) -> bool:
  """Whether a folder holds a packed model."""
  return (pathlib.Path(folder) / WEIGHTS).is_file()


def read_facts(folder: str | os.PathLike) -> Facts:
  """Read weights.json: FileNotFoundError without it, ValueError if it is damaged."""
  path = pathlib.Path(folder) / WEIGHTS
  content = manifests.read_json(path, f'{path}: no packed model here.')
  try:
    return Facts(**content)
  except TypeError as error:
    raise ValueError(
      f'{path}: damaged or of another version ({error}).'
    ) from None


def read_config(folder: str | os.PathLike) -> dict[str, Any]:
  """Read config.json; ValueError when it is damaged."""
  return manifests.read_object(checked(folder, CONFIG))


def checked(folder: str | os.PathLike, name: str) -> pathlib.Path:
  """Return the path of a file; ValueError when it is missing or damaged."""
  path = pathlib.Path(folder) / name
  checksums.check(path, read_facts(folder).files[name], _ADVICE)
  return path


def param_shapes(folder: str | os.PathLike) -> dict[str, Any]:
  """Return the tree of the parameters' shapes; no parameter is read."""
  shapes = {
    _path(part, name): jax.ShapeDtypeStruct(shape, np.float32)
    for part, entries in _by_part(folder, _read_shapes).items()
    for name, shape in entries.items()
    if not name.endswith(_SCALE)
  }
  return traverse_util.unflatten_dict(shapes, sep='/')


def load_params(
  folder: str | os.PathLike, parts: Collection[str] = ()
) -> dict[str, Any]:
  """Read the parameters, float32 in host memory; ValueError for a damaged file.

  Args:
    parts: names of the first level of the parameters, all by default; a part that the
      model lacks is left out.
  """
  arrays = {
    _path(part, name): value
    for part, arrays in _by_part(folder, _read, parts).items()
    for name, value in arrays.items()
  }
  return dequantize(arrays)


def _by_part(
  folder: str | os.PathLike, read: Callable, parts: Collection[str] = ()
) -> dict[str, dict[str, Any]]:
  """Return the result of `read` for each part's arrays, by their paths below the part."""
  by_part = collections.defaultdict(dict)
  for file, owners in read_facts(folder).parts.items():
    if asked := [x for x in owners if not parts or x in parts]:
      arrays = read(checked(folder, file))
      for part in asked:
        by_part[part] |= arrays
  return by_part


def _read(path: pathlib.Path) -> dict[str, np.ndarray]:
  with _damage(path):
    return safetensors_numpy.load(gzip.decompress(path.read_bytes()))


def _read_shapes(path: pathlib.Path) -> dict[str, tuple[int, ...]]:
  """Read the header alone: its length in 8 bytes, then JSON."""
  with _damage(path), gzip.open(path) as f:
    length = min(int.from_bytes(f.read(8), 'little'), _MAX_HEADER)
    header = json.loads(f.read(length))
    header.pop('__metadata__', None)
    return {name: tuple(entry['shape']) for name, entry in header.items()}


@contextlib.contextmanager
def _damage(path: pathlib.Path) -> Iterator[None]:
  """Name the file whose content is not what its form says."""
  try:
    yield
  except (
    *(ValueError, KeyError, TypeError, AttributeError, EOFError),
    *(zlib.error, gzip.BadGzipFile, safetensors.SafetensorError),
  ) as error:
    raise ValueError(f'{path}: damaged weights ({error}).') from None


def _path(part: str, name: str) -> str:
  return f'{part}/{name}' if part else name


def write(
  folder: str | os.PathLike,
  parts: Mapping[str, Mapping[str, Any]],
  config: Mapping[str, Any],
  *,
  step: int,
  fingerprints: Mapping[str, str],
  bits: int = 8,
  others: Collection[str] = (),
) -> None:
  """Write a model; parts of another packed model in the folder stay in it.

  Args:
    parts: name of the first level of the parameters -> tree below it; '' for the whole.
    config: JSON values.
    bits: 8 or 32, of a value.
    others: names of files in the folder that belong to the model, too.
  """
  folder = pathlib.Path(folder)
  trees = {part: quantize(tree, bits) for part, tree in parts.items()}
  old = Facts(step=step, fingerprints={}, parts={}, files={})
  if is_packed(folder):
    old = read_facts(folder)
    if remaining := {*itertools.chain(*old.parts.values())} - {*parts}:
      trees |= _by_part(folder, _read, remaining)
  files = _shared(trees)
  for file, (_, arrays) in files.items():
    # The library writes the memory of an array, whatever its order of axes.
    arrays = {k: np.asarray(x, order='C') for k, x in arrays.items()}
    data = safetensors_numpy.save(arrays)
    data = gzip.compress(data, _GZIP_LEVEL, mtime=0)
    output_files.write(folder / file, data)
  output_files.write(folder / CONFIG, manifests.dump(config))
  unused = {*old.parts} - {*files}
  facts = dataclasses.replace(
    old,
    step=step,
    fingerprints=dict(fingerprints),
    parts={file: owners for file, (owners, _) in files.items()},
    files={k: x for k, x in old.files.items() if k not in unused},
  )
  write_facts(folder, facts, {CONFIG, *files, *others})
  for file in unused:
    (folder / file).unlink(missing_ok=True)


def _shared(
  trees: Mapping[str, Mapping[str, np.ndarray]],
) -> dict[str, tuple[list[str], dict[str, np.ndarray]]]:
  """Return the file of each set of parts: these, and the arrays that all of them have."""
  owners = collections.defaultdict(list)
  for part, arrays in sorted(trees.items()):
    for name, x in arrays.items():
      content = checksums.of_bytes(x.tobytes())
      owners[name, x.dtype, x.shape, content].append(part)
  files = {}
  for (name, *_), parts in owners.items():
    file = f'{"-".join(parts) or "params"}.safetensors.gz'
    files.setdefault(file, (parts, {}))[1][name] = trees[parts[0]][name]
  return files


def write_facts(
  folder: pathlib.Path, facts: Facts, names: Collection[str]
) -> None:
  """Write weights.json with new checksums of some files."""
  sums = {name: checksums.of_file(folder / name) for name in sorted(names)}
  facts = dataclasses.replace(facts, files={**facts.files, **sums})
  text = manifests.sealed(dataclasses.asdict(facts))
  output_files.write(folder / WEIGHTS, text)
