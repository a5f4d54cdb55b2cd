# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The trained reader that comes with the package: 8 bits a parameter.

realm_jax/packaged/README.md documents it. It is the reader of an
`open_qa.OpenQa`; its BERT has all-MiniLM-L6-v2's shape and vocabulary.
"""

from collections.abc import Mapping
import os
import pathlib
from typing import Any

from flax import traverse_util
import numpy as np

from retrieval import tokenization
from retrieval.formats import safetensors_files
from retrieval.store import checksums, manifests, store, verification

NAME = 'packaged'  # in place of a run's folder
FOLDER = pathlib.Path(__file__).parents[1] / 'packaged'
_ARRAYS = 'reader.safetensors'
_TOKENIZER = 'tokenizer.json'
_CONFIG = 'config.json'
_FILES = 'files'  # of the config: name -> checksum
_SCALE = ':scale'
LEVELS = 127  # of a sign


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


def save(
  folder: str | os.PathLike,
  reader: Mapping[str, Any],
  tokenizer: tokenization.WordPieceTokenizer,
  config: Mapping[str, Any],
) -> None:
  """Write a reader (parameters of `open_qa.SpanReader`) in the packaged form.

  `config` holds JSON values: step, tokenizer (its fingerprint), and the
  sections of the run's config that say how data and model are made.
  """
  folder = pathlib.Path(folder)
  folder.mkdir(parents=True, exist_ok=True)
  safetensors_files.write(folder / _ARRAYS, quantize(reader))
  tokenizer.save(folder)
  files = {x: checksums.of_file(folder / x) for x in (_ARRAYS, _TOKENIZER)}
  text = manifests.sealed({**config, _FILES: files})
  store.write_atomically(folder / _CONFIG, text)


def exists() -> bool:
  """Whether the package holds a reader."""
  return (FOLDER / _ARRAYS).is_file()


def load(folder: str | os.PathLike = '') -> dict[str, Any]:
  """Read {'reader': parameters of `open_qa.SpanReader`}, float32.

  folder = '' is the package's own.

  Raises:
    FileNotFoundError: when the reader is missing.
    ValueError: when a file is damaged.
  """
  path = _find(folder, _ARRAYS)
  _verify(path)
  return {'reader': dequantize(safetensors_files.read(path))}


def load_config(folder: str | os.PathLike = '') -> dict[str, Any]:
  """Read the config of a packaged reader.

  Raises:
    FileNotFoundError: when it is missing.
    ValueError: when it is damaged.
  """
  path = _find(folder, _CONFIG)
  config = manifests.read_json(path)
  config.pop(_FILES, None)
  if missing := {'config', 'step', 'tokenizer'} - {*config}:
    raise ValueError(f'{path}: lacks {sorted(missing)}; it is damaged.')
  return config


def _find(folder: str | os.PathLike, name: str) -> pathlib.Path:
  path = pathlib.Path(folder or FOLDER) / name
  if not path.is_file():
    raise FileNotFoundError(f'{path}: no packaged reader here.')
  return path


def _verify(path: pathlib.Path) -> None:
  """Compare a file with the config's checksum; nothing is written beside it."""
  files = manifests.read_json(path.with_name(_CONFIG)).get(_FILES, {})
  if path.name in files:
    again = 'install the package again, or pack the reader again'
    verification.check(path, files[path.name], again, remember=False)
