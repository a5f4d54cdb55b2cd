# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Trained models without their training: config and weights of 32 or 8 bits.

  config.json      settings of the run
  weights.json     step, fingerprints, the files below with their checksums
  *.safetensors    parameters
  tokenizer.json or model, and other small files

`checkpoints` reads such a folder like that of a training run.
"""

from collections.abc import Collection, Mapping
import dataclasses
import os
import pathlib
from typing import Any

from flax import traverse_util
import jax
import numpy as np

from retrieval.store import checksums, manifests, safetensors_files, store

CONFIG = 'config.json'
WEIGHTS = 'weights.json'
LEVELS = 127  # of a sign
_SCALE = ':scale'
_ADVICE = 'install the package again, or pack the model again'


def quantize(params: Mapping[str, Any], bits: int = 8) -> dict[str, np.ndarray]:
  """Round matrices to int8, each column or embedding with its own scale.

  Scales are float32 under path + ':scale'; vectors stay float32. No value moves
  by more than half its scale, 1/254 of the largest beside it. At 32 bits nothing is
  rounded.
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
  """Return the tree that `quantize` rounded, in float32."""
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
  """What weights.json says of a folder."""

  step: int  # of the training
  fingerprints: dict[str, str]  # of the tokenizer and data of the training
  # file of parameters -> path of its tree in the model's; '' for the whole
  weights: dict[str, str]
  files: dict[str, str]  # name -> checksum
  vectors: dict[str, str] = dataclasses.field(default_factory=dict)


def is_packed(folder: str | os.PathLike) -> bool:
  """Whether a folder holds a packed model."""
  return (pathlib.Path(folder) / WEIGHTS).is_file()


def read_facts(folder: str | os.PathLike) -> Facts:
  """Read weights.json.

  Raises:
    FileNotFoundError: when the folder holds no packed model.
    ValueError: when the file is damaged.
  """
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
  """Return the path of a file, its checksum compared.

  Raises:
    ValueError: when the file is missing or damaged.
  """
  path = pathlib.Path(folder) / name
  # Nothing is written beside the file: the package may be read-only.
  checksums.check(path, read_facts(folder).files[name], _ADVICE)
  return path


def param_shapes(folder: str | os.PathLike) -> dict[str, Any]:
  """Return the tree of the parameters' shapes; no parameter is read."""
  shapes = {
    name: jax.ShapeDtypeStruct(value.shape, np.float32)
    for file, prefix in read_facts(folder).weights.items()
    for name, value in _arrays(folder, file, prefix).items()
    if not name.endswith(_SCALE)
  }
  return traverse_util.unflatten_dict(shapes, sep='/')


def load_params(
  folder: str | os.PathLike, parts: Collection[str] = ()
) -> dict[str, Any]:
  """Read the parameters, float32 in host memory.

  Args:
    parts: names of the tree's first level; those that are missing are left out. All
      of them by default.

  Raises:
    FileNotFoundError: when the folder holds no packed model.
    ValueError: when a file is damaged.
  """
  found = {}
  for file, prefix in read_facts(folder).weights.items():
    arrays = _arrays(folder, file, prefix)
    if parts:
      arrays = {k: x for k, x in arrays.items() if k.split('/')[0] in parts}
    if arrays:
      checked(folder, file)
    found |= arrays
  return dequantize(found)


def _arrays(
  folder: str | os.PathLike, file: str, prefix: str
) -> dict[str, np.ndarray]:
  """Map the arrays of a file by their paths in the model's tree."""
  arrays = safetensors_files.read(pathlib.Path(folder) / file)
  return {f'{prefix}/{k}': x for k, x in arrays.items()} if prefix else arrays


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
  store.write_atomically(folder / CONFIG, manifests.dump(config))
  for file, (_, tree) in trees.items():
    safetensors_files.write(folder / file, quantize(tree, bits))
  facts = Facts(
    step=step,
    fingerprints=dict(fingerprints),
    weights={file: prefix for file, (prefix, _) in trees.items()},
    files={},
  )
  if is_packed(folder):
    old = read_facts(folder)
    facts = dataclasses.replace(
      old,
      step=step,
      fingerprints=facts.fingerprints,
      weights=old.weights | facts.weights,
    )
  write_facts(folder, facts, {CONFIG, *trees, *others})


def write_facts(
  folder: pathlib.Path, facts: Facts, names: Collection[str]
) -> None:
  """Write weights.json with the checksums of some files anew."""
  sums = {name: checksums.of_file(folder / name) for name in names}
  facts = dataclasses.replace(facts, files=facts.files | sums)
  text = manifests.sealed(dataclasses.asdict(facts))
  store.write_atomically(folder / WEIGHTS, text)
