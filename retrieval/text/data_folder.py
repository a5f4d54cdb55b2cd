# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Paths, corpus and tokenizer of a data folder, common to all models."""

import dataclasses
import functools
import os
import pathlib
from typing import Any, ClassVar

from retrieval import tokenization
from retrieval.store import locks


@dataclasses.dataclass(frozen=True)
class DataFolder:
  """Paths and stores of one data folder; stores open once, on first use."""

  MADE_BY: ClassVar[str] = ''  # the command that fills it

  root: pathlib.Path

  @classmethod
  def of(cls, config: Any, workdir: str | os.PathLike) -> 'DataFolder':
    """Make the data folder that a config and a workdir name."""
    return cls(pathlib.Path(config.data_dir or pathlib.Path(workdir) / 'data'))

  def __reduce__(self):
    """Pickle the fields without the opened stores."""
    fields = (getattr(self, x.name) for x in dataclasses.fields(self))
    return type(self), tuple(fields)

  def path(self, name: str) -> pathlib.Path:
    """Path of one store."""
    return self.root / name

  @functools.cached_property
  def tokenizer_path(self) -> pathlib.Path:
    """The tokenizer's folder."""
    return self.root / 'tokenizer'

  @property
  def has_tokenizer(self) -> bool:
    """Whether there is a tokenizer; a killed writer leaves an empty folder."""
    files = (self.tokenizer_path / name for name in tokenization.FILES)
    return any(file.exists() for file in files)

  @functools.cached_property
  def tokenizer(self) -> tokenization.Tokenizer:
    """The tokenizer of the token store."""
    if not self.has_tokenizer:
      path, advice = self.tokenizer_path, f'run {self.MADE_BY} first.'
      advice = locks.unfinished(path) or advice
      raise FileNotFoundError(f'{path}: no tokenizer here; {advice}')
    return tokenization.load_tokenizer(self.tokenizer_path)
