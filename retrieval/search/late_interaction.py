# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Search by late interaction over compressed vectors of tokens (ColBERTv2, PLAID).

Santhanam et al. 2021, section 3.5, and 2022 (PLAID), section 4: the passages with a
token at one of the centroids nearest to a query's tokens are candidates; scores of the
centroids alone leave the best of them; these are decompressed and scored exactly.

A query is cut to the model's `query_length` (mostly 32 tokens with its specials): of a
chunk of 64 tokens about the first half asks. Passages in the index are cut to its
`passage_length`.

Dimension key: b queries, Q tokens of a query, C centroids, n candidates, d values of a
vector.
"""

from collections.abc import Iterator, Sequence
import dataclasses
import os
import pathlib
from typing import Any

import numpy as np

from retrieval import arguments
from retrieval.nn import max_sim
from retrieval.search import queries as queries_lib, token_store
from retrieval.searchers import base, joined, subset as subset_lib
from retrieval.store import manifests


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColbertConfig:
  """Model of the retriever 'colbert'."""

  # folder or hf:// name of the model; '': the one that made the index, which must
  # be there
  model: str = ''


class LateInteraction:
  """An index of `token_store`, its shards memory-mapped.

  Its `encoder` of queries and passages is a `colbert.ColbertEncoder`, or a `Lazy` one.
  """

  unit = max_sim.UNIT

  def __init__(
    self,
    path: str | os.PathLike,
    encoder: Any,
    num_probes: int = 2,
    num_rescored: int = 256,
  ):
    """Open an index of `token_store.build`; ValueError for another model's.

    Args:
      num_probes: centroids looked at for each token of a query. The defaults are
        PLAID's for k <= 100.
      num_rescored: passages that are decompressed, at least k.
    """
    self.path = pathlib.Path(path)
    self.store, self.codec = token_store.open_store(path)
    fields = self.fields = self.store.fields
    self.store.check_made_of(encoder=encoder.fingerprint)
    self.encoder, self._num_rescored = encoder, num_rescored
    self._num_probes = num_probes
    self._size = fields['shard_blocks']
    names = ('ends', 'centroids', 'codes', 'starts', 'blocks')
    self._sharded = {name: self.store.array(name) for name in names}
    self.fingerprint = manifests.fingerprint(
      [
        self.store.fingerprint,
        {'num_probes': num_probes, 'num_rescored': num_rescored},
      ]
    )

  def __len__(self) -> int:
    return self.fields['num_blocks']

  def unpruned(self) -> 'LateInteraction':
    """Return a search of the same index that scores all passages."""
    num_probes = len(self.codec.centroids)
    return LateInteraction(self.path, self.encoder, num_probes, len(self))

  def search(
    self,
    texts: Sequence[str] | np.ndarray,
    k: int,
    subset: subset_lib.Subset | None = None,
  ) -> base.Hits:
    """Find the k best passages of each query; ties go to the lower id.

    Args:
      subset: the only passages that are candidates; None is all. Where they fill no k
        candidates, more centroids are looked at.

    Returns:
      ids: [b, k] int64, best first; -1 where there are fewer candidates, and for a
        blank query.
      scores: [b, k] float32, of the decompressed vectors; -inf there.

    Raises:
      ValueError: for k < 1.
    """
    texts = arguments.texts(texts, 'texts')
    base.check_k(k)
    if subset is not None:
      subset.check(len(self))
    ids, scores = base.nothing(len(texts), k)
    for row, query in self.queries(texts):
      passages = self._candidates(query, k, subset, self._num_probes)
      values = self._exact(query, passages)
      first = np.argsort(-values, kind='stable')[:k]
      ids[row, : len(first)] = passages[first]
      scores[row, : len(first)] = values[first]
    return ids, scores

  def score(
    self, queries: queries_lib.Queries, ids: Sequence[np.ndarray]
  ) -> list[np.ndarray]:
    """Score passages without reading any text; see `rerank.Reranker`.

    The scores of a blank query are -inf.
    """
    scores = [np.full(len(row), -np.inf, np.float32) for row in ids]
    for row, query in self.queries(queries.texts):
      unique, place = np.unique(ids[row], return_inverse=True)
      scores[row] = self._exact(query, unique)[place]
    return scores

  def queries(
    self, texts: Sequence[str] | np.ndarray
  ) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the row and the vectors [Q, d] of each text that is not blank."""
    texts = arguments.texts(texts, 'texts')
    rows = [i for i, text in enumerate(texts) if text.strip()]
    if rows:
      vectors = self.encoder.queries([texts[i] for i in rows])
      for row, query in zip(rows, vectors, strict=True):
        yield row, query[query.any(axis=1)]

  def _candidates(
    self,
    query: np.ndarray,
    k: int,
    subset: subset_lib.Subset | None,
    probes: int,
  ) -> np.ndarray:
    """Return the passages that centroids score best, ascending, for rescoring."""
    cosines = self.codec.centroids @ query.T  # [C, Q]
    probes = min(probes, len(cosines))
    near = np.argpartition(-cosines, probes - 1, axis=0)[:probes]
    near = np.unique(near)
    passages, scores = [np.zeros(0, np.int64)], [np.zeros(0, np.float32)]
    for shard in range(self.store.num_shards):
      starts, lists, all_ends, centroids = self._arrays(
        shard, 'starts', 'blocks', 'ends', 'centroids'
      )
      positions, _ = max_sim.spans(starts[1:], near)
      rows = np.unique(lists[positions])
      if subset is not None:
        rows = rows[subset.mask[shard * self._size + rows.astype(np.int64)]]
      positions, ends = max_sim.spans(all_ends, rows)
      passages.append(shard * np.int64(self._size) + rows)
      scores.append(  # as if each token were its centroid
        max_sim.sum_of_best(cosines, centroids[positions], ends)
      )
    order = np.argsort(-np.concatenate(scores), kind='stable')
    count = max(k, self._num_rescored)
    best = np.sort(np.concatenate(passages)[order[:count]])
    if subset is not None and len(best) < min(k, len(subset.rows)):
      if probes < len(cosines):
        return self._candidates(query, k, subset, 4 * probes)
    return best

  def _exact(self, query: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Score ascending passages by their decompressed vectors: [n] float32."""
    scores = np.empty(len(ids), np.float32)
    shard_of, rows = np.divmod(ids, self._size)
    for shard in np.unique(shard_of).tolist():
      here = shard_of == shard
      all_ends, *stored = self._arrays(shard, 'ends', 'centroids', 'codes')
      positions, ends = max_sim.spans(all_ends, rows[here])
      values = self.codec.decode(*(x[positions] for x in stored))
      scores[here] = max_sim.max_sims(query, values, ends)
    return scores

  def _arrays(self, shard: int, *names: str) -> list[np.ndarray]:
    return [self._sharded[name].shard(shard) for name in names]


class JoinedInteraction(joined.JoinedSearcher):
  """Indices of one ColBERT, as one; ValueError for those of several models."""

  def __init__(self, parts: Sequence[LateInteraction]):
    super().__init__(parts, [*map(len, parts)])
    if len({x.encoder.fingerprint for x in parts}) > 1:
      raise ValueError(
        f'colbert_index.model: {[str(x.path) for x in parts]} are of different '
        'models; expected the name of one.'
      )
    self.fingerprint = manifests.fingerprint([x.fingerprint for x in parts])

  def unpruned(self) -> 'JoinedInteraction':
    """See `LateInteraction`."""
    return JoinedInteraction([x.unpruned() for x in self.parts])
