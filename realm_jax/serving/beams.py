# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The blocks that are looked at for a question: by vectors, by words, at random.

Lee et al. 2019 (ORQA), section 4: the best C blocks by inner product, C = 5000 in
the released code. The baselines of Guu et al. 2020, table 1, find them by words.
"""

from collections.abc import Callable
from collections.abc import Sequence
import concurrent.futures
import dataclasses
import functools
from typing import Any
from typing import Protocol
from typing import runtime_checkable
import zlib

import jax
from jaxtyping import Int
import numpy as np

from realm_jax.data import examples
from realm_jax.data import pipeline
from realm_jax.nn import config as config_lib
from realm_jax.nn import realm as model_lib
from realm_jax.serving import serving
from retrieval.index import bm25

KINDS = ('dense', 'bm25', 'random')


@dataclasses.dataclass(frozen=True)
class Beam:
  """What was found for a batch of questions.

  Attributes:
    ids: [B, C] int64 block ids, best first; -1 for none.
    fields: what the loss scores them by, see `reader_losses`: beam_vectors
      [B, C, d], of which the trained query embedder takes the inner product, or
      beam_scores [B, C] float32, which are final.
  """

  ids: Int[np.ndarray, 'b c']
  fields: examples.Batch


@runtime_checkable
class Retriever(Protocol):
  """Finds blocks for questions."""

  def __call__(
    self, params: Any, rows: examples.Batch, texts: Sequence[str], k: int
  ) -> Beam:
    """Finds the k best blocks of each question.

    Args:
      params: of the model as it is now.
      rows: question_ids and question_mask [B, Q].
      texts: [B] the questions; '' for padding.
      k: how many blocks.
    """


class DenseRetriever:
  """Inner products of the newest query embedder with an index's vectors."""

  def __init__(
    self, config: config_lib.RealmConfig, snapshots: pipeline.Snapshots
  ):
    """Nothing is compiled yet.

    Args:
      config: of the embedders.
      snapshots: which index version serves; `serving.ServingIndex`.
    """
    model = model_lib.Realm(config)
    self._snapshots = snapshots
    self._opened: tuple[str, Any] = ('', None)
    self._embed = jax.jit(
      lambda params, ids, mask: model.apply(
        {'params': params}, ids, mask, method='embed_queries'
      )
    )

  def __call__(
    self, params: Any, rows: examples.Batch, texts: Sequence[str], k: int
  ) -> Beam:
    """See `Retriever`; also the step of the index, index_step [B] int32."""
    del texts
    index = self._snapshots.serving(None)
    local = _local(serving.embedder_params(params))
    ids = _apart(self._search, local, rows, index.version.index.searcher, k)
    vectors = self._vectors(index.version)[np.maximum(ids, 0)]
    step = np.full(len(ids), index.step, np.int32)
    return Beam(ids, {'beam_vectors': np.asarray(vectors), 'index_step': step})

  def _search(self, params: Any, rows: examples.Batch, searcher, k: int) -> Any:
    """Ids of the k best blocks by the inner product: [B, k]."""
    queries = self._embed(params, rows['question_ids'], rows['question_mask'])
    return searcher.search(np.asarray(queries), k)[0]

  def _vectors(self, version: Any) -> Any:
    """The vectors of a version, opened once."""
    if self._opened[0] != version.name:
      self._opened = (version.name, version.vectors)
    return self._opened[1]


def _apart(function: Callable, *arguments: Any) -> Any:
  """Calls a function on this process's devices, out of the mesh that trains.

  A mesh is set for a thread, and that of several processes has devices which
  this one cannot compute on.
  """
  if jax.process_count() == 1:
    return function(*arguments)
  with concurrent.futures.ThreadPoolExecutor(1) as thread:
    return thread.submit(function, *arguments).result()


def _local(params: Any) -> Any:
  """Parameters that this process can compute with alone."""
  if jax.process_count() == 1:
    return params
  mesh = jax.tree.leaves(params)[0].sharding.mesh
  return jax.tree.map(lambda x: x.addressable_data(0), _gather(mesh)(params))


@functools.lru_cache
def _gather(mesh: jax.sharding.Mesh) -> Callable[[Any], Any]:
  """Compiled once for a mesh, not at every step."""
  whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
  return jax.jit(lambda x: x, out_shardings=whole)


class Bm25Retriever:
  """Okapi BM25 over titles and texts."""

  def __init__(self, index: bm25.Bm25, scale: float):
    """Takes the index, and what its scores are multiplied by."""
    self._index, self._scale = index, scale

  def __call__(
    self, params: Any, rows: examples.Batch, texts: Sequence[str], k: int
  ) -> Beam:
    """See `Retriever`."""
    del params, rows
    ids, scores = self._index.search(list(texts), k)
    scores = np.where(ids >= 0, self._scale * scores, 0.0)
    return Beam(ids, {'beam_scores': scores.astype(np.float32)})


class RandomRetriever:
  """Any blocks, the same for a question each time: what a reader can do alone."""

  def __init__(self, num_blocks: int):
    """Takes the number of blocks that there are."""
    self._num_blocks = num_blocks

  def __call__(
    self, params: Any, rows: examples.Batch, texts: Sequence[str], k: int
  ) -> Beam:
    """See `Retriever`."""
    del params, rows
    ids = np.full((len(texts), k), -1, np.int64)
    kept = min(k, self._num_blocks)
    for row, text in zip(ids, texts, strict=True):
      rng = np.random.default_rng(zlib.crc32(text.encode()))
      row[:kept] = rng.choice(self._num_blocks, kept, replace=False)
    return Beam(ids, {'beam_scores': np.zeros(ids.shape, np.float32)})
