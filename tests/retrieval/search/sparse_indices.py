# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Sparse indices of a few texts."""

from retrieval.search import sparse_index
from retrieval.text import passages as passages_lib


def in_memory(kind, texts, config=None) -> sparse_index.SparseIndex:
  """Return an index of texts in one shard, which is on no disk."""
  config, passages = config or kind.CONFIG(), passages_lib.TextList(texts)
  span = range(len(passages))
  shard = sparse_index._make(config, passages, span)
  fields = sparse_index._fields(config, passages.fingerprint, len(span))
  return kind(config, [shard].__getitem__, [len(span)], fields)
