# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Trained models in a few files: 8 bits a parameter, a config, and checksums."""

from collections.abc import Mapping, Sequence
import dataclasses
import os
import pathlib
from typing import Any

from flax import traverse_util
import numpy as np

from retrieval.formats import safetensors_files
from retrieval.store import checksums, manifests, store, verification

CONFIG = 'config.json'
LEVELS = 127  # of a sign
_FILES = 'files'  # of the config: name -> checksum
_FIELDS = {'config', 'step', 'tokenizer'}
_SCALE = ':scale'


def quantize(params: Mapping[str, Any]) -> dict[str, np.ndarray]:
  """Rounds matrices to int8, each column or embedding with its own scale.

  Scales are float32 under path + ':scale'; vectors stay float32. No value moves
  by more than half its scale, 1/254 of the largest beside it.
  """
  arrays = {}
  for name, value in traverse_util.flatten_dict(params, sep='/').items():
    value = np.asarray(value, np.float32)
    if value.ndim < 2:
      arrays[name] = value
      continue
    # A row of a table is one token's; a kernel's inputs are its first axis.
    axis = -1 if name.endswith('embedding') else 0
    scale = np.abs(value).max(axis=axis, keepdims=True) / LEVELS
    safe = np.where(scale > 0, scale, 1)
    arrays[name] = np.rint(value / safe).astype(np.int8)
    arrays[name + _SCALE] = scale.astype(np.float32)
  return arrays


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


def cache_folder(library: str, key: str) -> pathlib.Path:
  """Folder in the user's cache for the data of a packed model, by their key."""
  root = os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache'
  return pathlib.Path(root) / library / key[:16]


@dataclasses.dataclass(frozen=True)
class PackedModel:
  """A model in a folder."""

  folder: pathlib.Path
  name: str  # of the model in messages, and of its file of parameters
  config_name: str = CONFIG  # of its file of settings

  @property
  def arrays(self) -> str:
    """Name of the file of parameters."""
    return f'{self.name}.safetensors'

  def exists(self) -> bool:
    """Whether the folder holds the model."""
    return (self.folder / self.arrays).is_file()

  def save(
    self,
    params: Mapping[str, Any],
    config: Mapping[str, Any],
    others: Sequence[str] = (),
  ) -> None:
    """Write parameters and config.

    Args:
      config: JSON values: step, tokenizer (its fingerprint), and `config`, the
        sections of the run's config that say how data and model are made.
      others: names of files in the folder whose checksums are kept, too.
    """
    self.folder.mkdir(parents=True, exist_ok=True)
    safetensors_files.write(self.folder / self.arrays, quantize(params))
    files = {
      x: checksums.of_file(self.folder / x) for x in (self.arrays, *others)
    }
    text = manifests.sealed({**config, _FILES: files})
    store.write_atomically(self.folder / self.config_name, text)

  def load_params(self) -> dict[str, Any]:
    """Read the parameters, float32.

    Raises:
      FileNotFoundError: when the file is missing.
      ValueError: when it is damaged.
    """
    path = self._find(self.arrays)
    files = manifests.read_json(path.with_name(self.config_name))
    files = files.get(_FILES, {})
    if path.name in files:  # nothing is written beside the file
      again = f'install the package again, or pack the {self.name} again'
      verification.check(path, files[path.name], again, remember=False)
    return dequantize(safetensors_files.read(path))

  def load_config(self) -> dict[str, Any]:
    """Read the config: step, tokenizer and `config`.

    Raises:
      FileNotFoundError: when the file is missing.
      ValueError: when it is damaged.
    """
    path = self._find(self.config_name)
    config = manifests.read_json(path)
    config.pop(_FILES, None)
    if missing := _FIELDS - {*config}:
      raise ValueError(f'{path}: lacks {sorted(missing)}; it is damaged.')
    return config

  def _find(self, name: str) -> pathlib.Path:
    path = self.folder / name
    if not path.is_file():
      raise FileNotFoundError(f'{path}: no packaged model here ({self.name}).')
    return path
