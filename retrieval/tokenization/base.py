# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Protocol of the tokenizers, encodings, and functions that all share."""

from collections.abc import Sequence
import os
import pathlib
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from retrieval.store import hub


class Encoding(NamedTuple):
  """Tokens of one text."""

  ids: np.ndarray  # [n] int32
  # [n, 2] int64 first and past-last byte of each token in the text's UTF-8 form
  offsets: np.ndarray


@runtime_checkable
class Tokenizer(Protocol):
  """Text to ids and back."""

  vocab_size: int  # number of ids
  fingerprint: str  # hash of everything that decides the ids
  pad_id: int  # id that pads rows
  bos_id: int  # id that begins a document
  eos_id: int  # id that ends a document

  def encode(self, text: str) -> Encoding:
    """Encode one text; add no specials."""
    return self.encode_batch([text])[0]

  def encode_batch(self, texts: Sequence[str]) -> list[Encoding]:
    """Encode texts."""

  def decode(self, ids: Sequence[int | np.integer] | np.ndarray) -> str:
    """Decode ids to text, without special tokens."""

  def save(self, path: str | os.PathLike) -> None:
    """Write the tokenizer into the folder `path`."""


def find(path: str | os.PathLike, names: Sequence[str]) -> pathlib.Path:
  """Return `path` if it is a file, or the first of `names` in that folder."""
  path = hub.local(path)
  candidates = [path / name for name in names] if path.is_dir() else [path]
  for candidate in candidates:
    if candidate.is_file():
      return candidate
  expected = ' or '.join(str(c) for c in candidates)
  raise FileNotFoundError(f'No tokenizer: expected {expected}.')


def byte_offsets(text: str, offsets: Sequence[tuple[int, int]]) -> np.ndarray:
  """Convert character offsets [n] of a text to [n, 2] int64 in its UTF-8 form."""
  spans = np.asarray(offsets, np.int64).reshape(-1, 2)
  if text.isascii():
    return spans
  points = np.frombuffer(text.encode('utf-32-le'), np.uint32)
  width = 1 + (points >= 0x80) + (points >= 0x800) + (points >= 0x10000)
  ends = np.concatenate([[0], np.cumsum(width, dtype=np.int64)])
  return ends[spans]
