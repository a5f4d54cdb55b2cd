# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Choose the weight of hybrid neighbors on training documents, without a model.

  python -m experiments.tune_hybrid --config=configs/<name>.py --workdir=DIR

For random chunks of the datastore and each of --config.tune_hybrid.weights, the share of BM25 in the source
`weighted`, the command finds neighbors and measures how many tokens of the chunk that
follows the query they share: the longest common subsequence with a neighbor and its
continuation, over the tokens of the following chunk (the score of the source `oracle`).
It prints the mean over --config.tune_hybrid.num_neighbors neighbors, the first one, and the best one, in
percent with 95 % intervals, beside those of the fusion of ranks (the source `hybrid`).
The weight with the highest mean is chosen; the smallest of equal ones.

The data folder needs vectors, their index and BM25: --config.neighbors.source=weighted
--config.prepare.stages=vectors,index of experiments.prepare. Writes
DIR/tune_hybrid.json.
"""

from collections.abc import Iterator, Sequence
import dataclasses
import pathlib

from absl import logging
import numpy as np

from experiments.engine import hybrid_weights, progress, reports
from experiments.retro import config as config_lib
from retrieval import settings
from retrieval.search import (
  fuse,
  queries as queries_lib,
  rerank,
  retriever as retriever_lib,
)
from retrieval.store import locks
from retrieval.text import chunks as chunks_lib
from retro_jax.data import folder as retro_data

_RUN = 32  # consecutive chunks; intervals are over such runs


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuneHybrid:
  """The weights, and the chunks that measure them."""

  weights: tuple[settings.Share, ...] = hybrid_weights.WEIGHTS
  max_chunks: settings.Size = 2000  # to find neighbors of
  num_neighbors: settings.Size = 2  # to measure


def runs_of(
  chunks: chunks_lib.ChunkStore, count: int, seed: int
) -> Iterator[tuple[int, slice]]:
  """Yield shards and rows of random runs of chunks, `count` chunks at least."""
  runs = [
    (shard, slice(low, min(low + _RUN, rows)))
    for shard, rows in enumerate(chunks.store.rows('document'))
    for low in range(0, rows, _RUN)
  ]
  for number in np.random.default_rng(seed).permutation(len(runs)):
    if count <= 0:
      return
    yield runs[number]
    count -= runs[number][1].stop - runs[number][1].start


def measure(
  datastore: chunks_lib.ChunkStore,
  parts: Sequence[retriever_lib.Retriever],
  weights: Sequence[float],
  runs: Sequence[tuple[int, slice]],
  k: int,
  update: progress.Update,
) -> hybrid_weights.Values:
  """Measure the fusion by ranks and each weight: a mean over chunks of each run."""
  found: dict[str, list[np.ndarray]] = {}
  n, oracle = max(k, fuse.CANDIDATES), rerank.Oracle(datastore)
  for done, (shard, rows) in enumerate(runs, start=1):
    queries = queries_lib.ChunkQueries(datastore, datastore.ids(shard, rows))
    lists = [part.search(queries, n) for part in parts]
    lengths = np.array([len(row) for row in queries.following_rows()])
    kept = lengths > 0
    for name, (ids, _) in hybrid_weights.fused(lists, weights, k).items():
      if kept.any():
        shared = np.stack(oracle.score(queries, [*ids]))
        shares = shared[kept] / lengths[kept, None]
        found.setdefault(name, []).append(shares)
    update(done, len(runs))
  return {
    name: {
      'mean': np.array([x.mean() for x in values]),
      'first': np.array([x[:, 0].mean() for x in values]),
      'best': np.array([x.max(axis=1).mean() for x in values]),
    }
    for name, values in found.items()
  }


def tune_hybrid(
  config: config_lib.Config, workdir: str, tuning: TuneHybrid
) -> None:
  """Measure every weight, print the table and the best weight."""
  root, k = pathlib.Path(workdir), tuning.num_neighbors
  data = retro_data.DataFolder.of(config, workdir)
  datastore, made = data.chunks('train'), data.datastore.retrievers(config)
  parts = [made.make('dense'), made.make('bm25')]
  runs = list(runs_of(datastore, tuning.max_chunks, config.seed))
  with locks.writer(root, hybrid_weights.FILE):
    with progress.bar('weights', 'runs of chunks') as update:
      values = measure(datastore, parts, tuning.weights, runs, k, update)
    count = sum(rows.stop - rows.start for _, rows in runs)
    record = hybrid_weights.show(
      values,
      f'tokens of the following chunk in {k} neighbors, percent; {count:,} chunks',
    )
    best, _ = hybrid_weights.choose([values], 'mean')
    print(f'Most at --config.neighbors.words_weight={best}.')
    content = {
      'chosen': float(best),
      'num_neighbors': k,
      'datastore': datastore.fingerprint,
      'weights': record,
    }
    path = reports.write_json(root / hybrid_weights.FILE, content)
  logging.info('The figures are in %s.', path)
