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

from retrieval import tokenization
from retrieval.formats import packed

NAME = 'packaged'  # in place of a run's folder
FOLDER = pathlib.Path(__file__).parents[2] / 'packaged'
_TOKENIZER = 'tokenizer.json'


def _model(folder: str | os.PathLike) -> packed.PackedModel:
  return packed.PackedModel(pathlib.Path(folder or FOLDER), 'reader')


def save(
  folder: str | os.PathLike,
  reader: Mapping[str, Any],
  tokenizer: tokenization.WordPieceTokenizer,
  config: Mapping[str, Any],
) -> None:
  """Write a reader (parameters of `open_qa.SpanReader`); see `PackedModel.save`."""
  pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
  tokenizer.save(folder)
  _model(folder).save(reader, config, [_TOKENIZER])


def exists() -> bool:
  """Whether the package holds a reader."""
  return _model('').exists()


def load(folder: str | os.PathLike = '') -> dict[str, Any]:
  """Read {'reader': parameters of `open_qa.SpanReader`}, float32.

  folder = '' is the package's own. Errors are those of `PackedModel.load_params`.
  """
  return {'reader': _model(folder).load_params()}


def load_config(folder: str | os.PathLike = '') -> dict[str, Any]:
  """Read the config of a packaged reader; see `PackedModel.load_config`."""
  return _model(folder).load_config()
