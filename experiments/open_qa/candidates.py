# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Blocks of several retrievers in one list, among which examples are chosen."""

from collections.abc import Callable, Sequence

import numpy as np

from experiments.open_qa import dpr_examples
from realm_jax.serving import trained_models
from retrieval.index import text_indices


def interleaved(
  reader: trained_models.TrainedReader, kinds: Sequence[str]
) -> dpr_examples.Retrieve:
  """Return a retriever of the first of each list, then the second, ..."""
  searches = [_search(reader, kind) for kind in kinds]

  def retrieve(texts: Sequence[str], depth: int) -> np.ndarray:
    k = min(depth // len(kinds), reader.data.blocks.num_blocks)
    lists = [search(texts, k) for search in searches]
    return without_repeats(np.stack(lists, axis=2).reshape(len(texts), -1))

  return retrieve


def _search(
  reader: trained_models.TrainedReader, kind: str
) -> Callable[[Sequence[str], int], np.ndarray]:
  if kind == 'dense':
    return reader.with_retriever(kind).as_realm().retrieve
  data = reader.data
  index = text_indices.TextIndices(data.root, data.blocks).words(kind)
  return lambda texts, k: index.search(texts, k)[0]


def without_repeats(ids: np.ndarray) -> np.ndarray:
  """Return ids [b, n] with -1 where an id stands before in the same row."""
  result = np.full_like(ids, -1)
  for row, found in zip(result, ids, strict=True):
    _, first = np.unique(found, return_index=True)
    row[first] = found[first]
  return result
