# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in the formats of TensorFlow and the Hugging Face port."""

from collections.abc import Sequence
import dataclasses
import pathlib
from typing import Any

from absl import logging
import numpy as np

from realm_jax.checkpoints import (
  config as checkpoint_config,
  convert as checkpoint_convert,
  names as checkpoint_names,
)
from retrieval.formats import tensor_bundle, weights
from retrieval.store import hub

_TOKENIZERS = ('tokenizer.json', 'vocab.txt')
_RECORDS = 'block_records.npy'


@dataclasses.dataclass
class Sources:
  """Content of the checkpoints that are converted together."""

  # the checkpoints in our form
  parts: list[checkpoint_convert.Converted] = dataclasses.field(
    default_factory=list
  )
  # config.json of the Hugging Face port, if any
  fields: dict[str, Any] | None = None
  # [n, d] vectors of the blocks, memory-mapped, if any
  vectors: np.ndarray | None = None
  vectors_name: str = ''  # file or folder of the vectors
  tokenizer: pathlib.Path | None = None  # folder of the vocabulary, if any
  records: pathlib.Path | None = None  # path of block_records.npy, if any


def read(paths: Sequence[str], num_heads: int = 0) -> Sources:
  """Read checkpoints that complete each other.

  Args:
    paths: Hugging Face folders, prefixes of TensorFlow bundles, or folders with
      such bundles in them or in their subfolders.
    num_heads: attention heads of the bundles, which do not record the number; 0
      for one head for each 64 units.
  """
  result = Sources()
  for name in paths:
    folder = hub.local(name)
    path = str(folder)
    if tensor_bundle.exists(path) or path.endswith('.index'):
      _read_bundle(result, path, num_heads)
    elif (folder / 'config.json').is_file():
      _read_hf(result, folder)
    else:
      prefixes = sorted(folder.rglob('*.index'))
      if not prefixes:
        raise FileNotFoundError(
          f'{path}: no checkpoint there; expected a folder with config.json and '
          'model.safetensors or pytorch_model.bin, or a TensorFlow checkpoint '
          '(its prefix, or a folder with <prefix>.index beneath).'
        )
      for prefix in prefixes:
        _read_bundle(result, str(prefix), num_heads)
  return result


def read_vectors(prefix: str) -> np.ndarray:
  """Map the vectors of the blocks in a bundle: [n, d]."""
  bundle = tensor_bundle.Bundle(prefix)
  if checkpoint_names.BLOCKS not in bundle.entries:
    raise ValueError(
      f'{bundle.prefix}: variables {sorted(bundle.entries)[:5]}; expected '
      f'{checkpoint_names.BLOCKS}.'
    )
  logging.info('Comparing the checksum of %s.', bundle.prefix)
  return bundle.tensor(checkpoint_names.BLOCKS)


def _read_bundle(result: Sources, prefix: str, num_heads: int) -> None:
  bundle = tensor_bundle.Bundle(prefix)
  if checkpoint_names.BLOCKS in bundle.entries:
    result.vectors = read_vectors(prefix)
    result.vectors_name = bundle.prefix
    return
  variables = {
    name: bundle.tensor(name)
    for name in bundle.entries
    if name == checkpoint_names.STEP or not checkpoint_names.is_skipped(name)
  }
  part = checkpoint_convert.from_bundle(
    variables, bundle.prefix, num_heads=num_heads
  )
  skipped = {*bundle.entries} - {*part.fates}
  part.fates.update(dict.fromkeys(skipped, 'skipped'))
  result.parts.append(part)


def _read_hf(result: Sources, folder: pathlib.Path) -> None:
  fields = checkpoint_config.read(folder / 'config.json')
  part = checkpoint_convert.from_hf(
    weights.read(weights.find(folder)),
    checkpoint_config.sizes(fields),
    str(folder),
  )
  result.parts.append(part)
  readers = 'RealmReader', 'RealmForOpenQA'
  if result.fields is None or part.hf_class in readers:
    result.fields = fields
  if part.vectors is not None:
    result.vectors, result.vectors_name = part.vectors, str(folder)
  if any((folder / name).is_file() for name in _TOKENIZERS):
    result.tokenizer = folder
  if (folder / _RECORDS).is_file():
    result.records = folder / _RECORDS
