# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Trained models without their training: config and weights of 32 or 8 bits.

  config.json      settings of the run
  weights.json     step, fingerprints, the files below with their checksums
  *.safetensors    parameters
  tokenizer.json or model, and other small files

`checkpoints` reads such a folder like that of a training run. Arrays are coded without
loss (`coded_arrays`), those of other files as changes to one of them, the base. To
replace files, a writer puts FILE.next beside each, then replaces weights.json, then
renames: a killed writer leaves the old model or the new one.
"""

from collections.abc import Callable, Collection, Mapping
import contextlib
import dataclasses
import functools
import os
import pathlib
from typing import Any

from flax import traverse_util
import jax
import numpy as np

from retrieval.store import (
  checksums,
  coded_arrays,
  manifests,
  safetensors_files,
  store,
)

CONFIG = 'config.json'
WEIGHTS = 'weights.json'
LEVELS = 127  # of a sign
_SCALE = ':scale'
_NEXT = '.next'  # of a file's new version
_ADVICE = 'install the package again, or pack the model again'


def quantize(params: Mapping[str, Any], bits: int = 8) -> dict[str, np.ndarray]:
  """Round matrices to int8, each column or embedding with its own scale.

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
    levels, scale = round_to_levels(value, axis)
    arrays[name], arrays[name + _SCALE] = levels, scale
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
  found = {}
  for name, value in arrays.items():
    if name.endswith(_SCALE):
      continue
    scale = arrays.get(name + _SCALE)
    value = np.asarray(value, np.float32)
    found[name] = value if scale is None else value * np.asarray(scale)
  return traverse_util.unflatten_dict(found, sep='/')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
  """Content of weights.json."""

  step: int  # of the training
  fingerprints: dict[str, str]  # of the tokenizer and data of the training
  # file of parameters -> path of its tree in the model's; '' for the whole
  weights: dict[str, str]
  files: dict[str, str]  # name -> checksum
  vectors: dict[str, str] = dataclasses.field(default_factory=dict)
  base: str = ''  # file that others are changes to; '': the last by name (earlier writers)
  # Of earlier writers: file -> path of an array that it leaves out -> file and path of
  # its equal
  shared: dict[str, dict[str, list[str]]] = dataclasses.field(
    default_factory=dict
  )


def is_packed(folder: str | os.PathLike) -> bool:
  """Whether a folder holds a packed model."""
  return (pathlib.Path(folder) / WEIGHTS).is_file()


def read_facts(folder: str | os.PathLike) -> Facts:
  """Read weights.json: FileNotFoundError without it, ValueError if it is damaged."""
  path = pathlib.Path(folder) / WEIGHTS
  found = manifests.read_json(path, f'{path}: no packed model here.')
  try:
    return Facts(**found)
  except TypeError as error:
    raise ValueError(f'{path}: damaged ({error}).') from None


def read_config(folder: str | os.PathLike) -> dict[str, Any]:
  """Read config.json; ValueError when it is damaged."""
  return manifests.read_object(checked(folder, CONFIG))


def checked(folder: str | os.PathLike, name: str) -> pathlib.Path:
  """Return the path of a file; ValueError when it is missing or damaged."""
  checksum = read_facts(folder).files[name]
  path = _path(folder, name, checksum)
  checksums.check(path, checksum, _ADVICE)
  return path


def next_file(folder: str | os.PathLike, name: str) -> pathlib.Path:
  """Return where to write a new version of a file before `write_facts`."""
  return pathlib.Path(folder) / f'{name}{_NEXT}'


def _path(folder: str | os.PathLike, name: str, checksum: str) -> pathlib.Path:
  """Return the file that has a checksum, also where its writer was killed."""
  later = next_file(folder, name)
  with contextlib.suppress(FileNotFoundError):
    if checksums.of_file(later) == checksum:
      return later
  return pathlib.Path(folder) / name


def param_shapes(folder: str | os.PathLike) -> dict[str, Any]:
  """Return the tree of the parameters' shapes; no parameter is read."""
  facts = read_facts(folder)
  shapes = {
    name: jax.ShapeDtypeStruct(shape, np.float32)
    for file in facts.weights
    for name, shape in coded_arrays.shapes(_stored(folder, facts, file)).items()
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
  facts, found = read_facts(folder), {}
  read = _reader(folder, facts)

  def is_wanted(name: str) -> bool:
    return not parts or name.split('/')[0] in parts

  for file in facts.weights:
    if any(map(is_wanted, _stored(folder, facts, file))):
      found |= {k: x for k, x in read(file).items() if is_wanted(k)}
  return dequantize(found)


def _reader(
  folder: str | os.PathLike, facts: Facts
) -> Callable[[str], dict[str, np.ndarray]]:
  """Return what reads a file's arrays by their paths in the model's tree."""

  @functools.cache
  def read(file: str) -> dict[str, np.ndarray]:
    checked(folder, file)
    stored = _stored(folder, facts, file)
    changed = any(name.endswith(f':{coded_arrays.CHANGE}') for name in stored)
    base = read(facts.base or max(facts.weights)) if changed else {}
    return coded_arrays.decode(stored, base)

  return read


def _stored(
  folder: str | os.PathLike, facts: Facts, file: str
) -> dict[str, np.ndarray]:
  """Map a file's arrays as they are coded, the shared ones, too."""
  path = _path(folder, file, facts.files[file])
  found = _in_tree(facts.weights[file], safetensors_files.read(path))
  for name, (owner, source) in facts.shared.get(file, {}).items():
    checked(folder, owner)
    found[name] = _stored(folder, facts, owner)[source]
  return found


def _in_tree(
  prefix: str, arrays: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
  start = f'{prefix}/' if prefix else ''
  return {start + name: value for name, value in arrays.items()}


def write(
  folder: str | os.PathLike,
  trees: Mapping[str, tuple[str, Mapping[str, Any]]],
  config: Mapping[str, Any],
  *,
  step: int,
  fingerprints: Mapping[str, str],
  bits: int = 8,
  others: Collection[str] = (),
) -> None:
  """Write a model; files of another packed model in the folder stay in it.

  Args:
    trees: file -> path of its tree in the model's, '' for the whole, and the tree.
    config: JSON values.
    bits: 8 or 32, of a value.
    others: names of files in the folder that belong to the model, too.
  """
  folder = pathlib.Path(folder)
  folder.mkdir(parents=True, exist_ok=True)
  old = Facts(step=step, fingerprints={}, weights={}, files={})
  if is_packed(folder):
    old = read_facts(folder)
    _settle(folder, old)
  store.write_atomically(next_file(folder, CONFIG), manifests.dump(config))
  read, weights = _reader(folder, old), dict(old.weights)
  files = {file: read(file) for file in weights if file not in trees}
  for file, (prefix, tree) in trees.items():
    files[file] = _in_tree(prefix, quantize(tree, bits))
    weights[file] = prefix

  def coded(base):
    return {
      file: coded_arrays.encode(x, {} if file == base else files[base])
      for file, x in files.items()
    }

  def size(base):
    return sum(x.nbytes for one in coded(base).values() for x in one.values())

  base = min(sorted(files, reverse=True), key=size)
  facts = dataclasses.replace(
    old,
    step=step,
    fingerprints=dict(fingerprints),
    weights=weights,
    base=base,
    shared={},
  )
  for file, arrays in coded(base).items():
    own = {k.removeprefix(f'{weights[file]}/'): x for k, x in arrays.items()}
    safetensors_files.write(next_file(folder, file), own)
  write_facts(folder, facts, {CONFIG, *files, *others})


def write_facts(
  folder: pathlib.Path, facts: Facts, names: Collection[str]
) -> None:
  """Write weights.json with new checksums of some files; then put these in place."""
  sums = dict(facts.files)
  for name in names:
    later = next_file(folder, name)
    sums[name] = checksums.of_file(later if later.exists() else folder / name)
  facts = dataclasses.replace(facts, files=sums)
  text = manifests.sealed(dataclasses.asdict(facts))
  store.write_atomically(folder / WEIGHTS, text)
  _settle(folder, facts)


def _settle(folder: pathlib.Path, facts: Facts) -> None:
  """Put new versions in place if weights.json names them; remove others."""
  for later in folder.glob(f'*{_NEXT}'):
    name = later.name.removesuffix(_NEXT)
    if name in facts.files and _path(folder, name, facts.files[name]) == later:
      os.replace(later, folder / name)
    else:
      later.unlink()
