# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Passages: spans of the documents of a token store, the units of retrieval.

Chunks (RETRO) and blocks (REALM) are both. Ids run through the documents in order;
-1 is no passage.
"""

import abc
from collections.abc import Iterable, Sequence
import functools
import hashlib
import os

import numpy as np

from retrieval import arguments, tokenization
from retrieval.readers import base
from retrieval.store import array_store
from retrieval.text import tokens as tokens_lib

Place = str | os.PathLike | array_store.Store  # its folder, or opened


class Passages(abc.ABC):
  """Spans over a token store.

  Attributes:
    path: folder of their store.
    fingerprint: hash of everything that determines the passages.
    tokens: store of the documents' tokens.
    parts: passages of which these are made; none of a store (`joined`).
  """

  parts: Sequence['Passages'] = ()

  def __init__(
    self, path: Place, kind: str, tokens: tokens_lib.TokenStore | None
  ):
    """Open the store; a ValueError where it is damaged or of other tokens."""
    self.store = array_store.Store.open(path, kind)
    self.path, self.fingerprint = self.store.path, self.store.fingerprint
    self.tokens = self.store.source('tokens', tokens, tokens_lib.TokenStore)
    self._document = self.store.array('document')

  def __len__(self) -> int:
    return len(self._document)

  def __reduce__(self):
    """Pickle the path: another process opens the store."""
    return type(self), (self.path.absolute(),)

  @functools.cached_property
  def tokenizer(self) -> tokenization.Tokenizer:
    """The tokenizer of the documents, from the folder of the passages."""
    tokenizer = tokenization.load_tokenizer(self.path.parent / 'tokenizer')
    self.tokens.check_tokenizer(tokenizer)
    return tokenizer

  def documents(self, ids: np.ndarray) -> np.ndarray:
    """Return the document of each passage: [...] int64."""
    return np.asarray(self._document[np.asarray(ids)])

  def titles(self, ids: Iterable[int | np.integer]) -> list[str]:
    """Return the title of each passage's document [n]; '' for -1."""
    ids = np.asarray([*ids], np.int64)
    documents = iter(self.documents(ids[ids >= 0]).tolist())
    return [self.tokens.title(next(documents)) if i >= 0 else '' for i in ids]

  def metadata(
    self, ids: Iterable[int | np.integer]
  ) -> list[dict[str, base.Scalar]]:
    """Return the metadata of each passage's document [n]; {} for -1."""
    ids = np.asarray([*ids], np.int64)
    real = ids[ids >= 0]
    rows = iter(self.tokens.metadata.rows(self.documents(real)))
    return [next(rows) if i >= 0 else {} for i in ids.tolist()]

  @abc.abstractmethod
  def texts(self, ids: np.ndarray) -> list[str]:
    """Return the text of each passage [n]; '' for -1."""

  def search_texts(self, ids: np.ndarray) -> list[str]:
    """Return the text of each passage [n] in an index of words."""
    return self.texts(ids)

  def full_texts(self, ids: np.ndarray) -> list[str]:
    """Return the text of each passage [n] for a re-ranker."""
    return self.search_texts(ids)

  @abc.abstractmethod
  def hashes(self, ids: np.ndarray) -> np.ndarray:
    """Return a hash of each passage, equal for equal texts: [n] uint64."""


class TextList(Passages):
  """Texts in memory, without documents and tokens."""

  tokens = None

  def __init__(self, texts: Iterable[str]):
    """Take [N] texts."""
    self._texts = list(arguments.texts(texts, 'texts'))
    self._hashes = tokens_lib.hash_ids(self._texts)
    self.fingerprint = hashlib.sha256(self._hashes.tobytes()).hexdigest()[:32]

  def __len__(self) -> int:
    return len(self._texts)

  def __reduce__(self):
    """Pickle the texts."""
    return TextList, (self._texts,)

  def texts(self, ids: np.ndarray) -> list[str]:
    """See `Passages`."""
    return [self._texts[i] if i >= 0 else '' for i in ids]

  def hashes(self, ids: np.ndarray) -> np.ndarray:
    """See `Passages`."""
    return self._hashes[ids]
