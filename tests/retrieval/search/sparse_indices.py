# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Sparse indices of a few texts."""

from retrieval.search import sparse_index
from retrieval.text import passages as passages_lib


def in_memory(kind, texts) -> sparse_index.SparseIndex:
  """Return an index of texts in one shard, which is on no disk."""
  passages = passages_lib.TextList(texts)
  span = range(len(passages))
  shard = sparse_index._make(kind, passages, span)
  made_of = kind.made_of(passages.fingerprint, len(span))
  return kind([shard].__getitem__, [len(span)], made_of)
