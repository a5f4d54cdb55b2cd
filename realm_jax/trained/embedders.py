# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A trained retriever: blocks to vectors, queries to blocks.

Guu et al. 2020, section 3.3. Queries are embedded with the parameters that embedded
the index's blocks, so that a search is consistent however old the index is.
"""

from collections.abc import Callable, Sequence
import functools
from typing import Any

import jax
import numpy as np

from realm_jax.data import examples
from realm_jax.nn import config as config_lib, initialize, realm as model_lib
from retrieval import arguments, tokenization
from retrieval.index import index_versions
from retrieval.nn import batch_encoder, bert, sharding
from retrieval.text import blocks as blocks_lib

_ROWS = 4096  # block rows that are built at once
_QUERY_BATCH = 64


def embedder_params(params: Any) -> dict:
  """Return the part of a Realm's parameters that an index depends on."""
  return {name: params[name] for name in initialize.EMBEDDERS if name in params}


def block_embedder_params(params: Any) -> Any:
  """Return the part of the parameters that embeds blocks."""
  return params.get('block_embedder', params.get('embedder'))


@functools.lru_cache
def gather(mesh: jax.sharding.Mesh) -> Callable[[Any], Any]:
  """Return a function that replicates arrays on a mesh, compiled once."""
  return jax.jit(lambda x: x, out_shardings=sharding.replicated(mesh))


def block_encoder(
  config: config_lib.RealmConfig, sep_id: int
) -> batch_encoder.Encode:
  """Return the function that a `batch_encoder` compiles for blocks.

  Rows are [CLS] title [SEP] body [SEP]; segments follow from [SEP].
  """
  model = model_lib.Realm(config)

  def encode(params, ids, lengths):
    rows = ids, *bert.segments(ids, lengths, sep_id)
    return model.apply({'params': params}, *rows, method='embed_blocks')

  return encode


class BlockEmbedder:
  """Embeds many blocks; an `index_versions.EmbedBlocks`."""

  def __init__(
    self,
    config: config_lib.RealmConfig,
    layout: examples.Layout,
    blocks: blocks_lib.BlockStore,
    params: Any,
    *,
    batch_tokens: int = 0,
  ):
    """Place parameters on all local devices; 0 tokens go by device."""
    self._config, self._layout, self._blocks = config, layout, blocks
    self._batch_tokens = batch_tokens
    self._encoder = batch_encoder.BatchEncoder(
      block_encoder(config, layout.sep_id),
      params,
      dimension=config.vector_size,
      max_length=layout.block_length,
      batch_tokens=batch_tokens,
    )

  def __reduce__(self):
    """Pickle model and parameters; another process takes its devices."""
    params = jax.tree.map(np.asarray, self._encoder.params)
    make = functools.partial(BlockEmbedder, batch_tokens=self._batch_tokens)
    return make, (self._config, self._layout, self._blocks, params)

  def __call__(
    self, ids: np.ndarray, progress: Callable[[int, int], None] | None = None
  ) -> np.ndarray:
    """Embed blocks [n] of ids, -1 for the null document: [n, d] float32.

    Raises:
      ValueError: if a vector is not finite.
    """

    def rows():
      for low in range(0, len(ids), _ROWS):
        padded, mask, _ = examples.titled_blocks(
          self._layout, self._blocks, ids[low : low + _ROWS]
        )
        yield from (row[x] for row, x in zip(padded, mask, strict=True))

    return self._encoder(rows(), len(ids), progress)


@functools.lru_cache
def query_encoder(config: config_lib.RealmConfig) -> Callable[..., jax.Array]:
  """Return the compiled function of (params, ids [B, Q], mask): vectors [B, d]."""
  model = model_lib.Realm(config)
  return jax.jit(
    lambda params, ids, mask: model.apply(
      {'params': params}, ids, mask, method='embed_queries'
    )
  )


class BlockIndex:
  """An index version with its query embedder; as `pipeline.Snapshots`, for every batch."""

  def __init__(
    self, version: index_versions.Version, config: config_lib.RealmConfig
  ):
    self.version, self.step = version, version.step
    self._embed = query_encoder(config)
    self._params = jax.device_put(version.params, jax.local_devices()[0])

  def serving(self, batch_index: int | None) -> 'BlockIndex':
    """Return this version."""
    del batch_index
    return self

  def retrieve(
    self, query_ids: np.ndarray, query_mask: np.ndarray, k: int
  ) -> np.ndarray:
    """Find the k blocks with the largest inner products for rows [B, Q].

    Returns [B, k] int64 block ids, best first; -1 where there are fewer.
    """
    vectors = np.asarray(self._embed(self._params, query_ids, query_mask))
    ids, _ = self.version.index.searcher.search(vectors, k)
    return ids

  def retrieve_texts(
    self,
    texts: Sequence[str],
    k: int,
    tokenizer: tokenization.WordPieceTokenizer,
    layout: examples.Layout,
  ) -> np.ndarray:
    """Find blocks [len(texts), k] for texts, cut to the query length."""
    texts = arguments.texts(texts, 'texts')
    results = np.zeros((len(texts), k), np.int64)
    for low in range(0, len(texts), _QUERY_BATCH):
      batch = list(texts[low : low + _QUERY_BATCH])
      filled = batch + [''] * (_QUERY_BATCH - len(batch))  # one shape for all
      rows = examples.encode_rows(
        tokenizer.encode_ids_batch, filled, layout.query_tokens
      )
      query = examples.queries(layout, *rows)
      ids = self.retrieve(query['query_ids'], query['query_mask'], k)
      results[low : low + len(batch)] = ids[: len(batch)]
    return results
