# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Show the referee a REALM's predictions of single masked words.

The word after a place is masked, and all others are read. A document's id is the hash of
the block it comes from, which is not retrieved for it, as in training.
"""

from collections.abc import Sequence
import functools

import jax
import numpy as np

from realm_jax.data import examples, pipeline, sources
from realm_jax.trained import explain, realm
from retro_jax.evaluation import reached, referee

_NONE = -1  # block of a sentence that is of no block


def documents(
  trained: realm.TrainedRealm, valid_fraction: float, most: int
) -> list[referee.Document]:
  """Return held-out sentences, or any where none are held out."""
  split = 'valid' if valid_fraction else 'all'
  source = sources.MaskedSentences(
    trained.data.masked_blocks,
    trained.layout,
    sources.SourceConfig(
      masker='uniform', split=split, valid_fraction=valid_fraction
    ),
  )
  rng, chosen = np.random.default_rng(0), []
  for i in rng.permutation(len(source))[:most]:
    row = source.example(int(i), rng)
    tokens = row['sentence'][: row['sentence_count']].astype(np.int64)
    mask = row['mlm_mask']
    tokens[row['mlm_positions'][mask] - 1] = row['mlm_targets'][mask]
    chosen.append(referee.Document(tokens, id=str(row['origin_hash'])))
  return chosen


def scorer(trained: realm.TrainedRealm) -> referee.Scorer:
  """Return what a REALM shows."""
  data, layout = trained.data, trained.layout
  retrieval = pipeline.Retrieval(data.blocks, layout, trained.index)
  hashes = data.blocks.all_hashes()
  params, vocab_size = jax.device_put(trained.params), data.tokenizer.vocab_size
  version = trained.index.version
  of_search = reached.search_bytes(version.index.searcher)

  def log_probs(tokens: np.ndarray, places: np.ndarray, ids: Sequence[str]):
    rows = [
      examples.mask_sentence(layout, _without_padding(row, layout), place + 1)
      | {'origin': np.int32(_NONE), 'origin_hash': np.uint64(name or 0)}
      for row, of_row, name in zip(tokens, places, ids, strict=True)
      for place in of_row[:, None]
    ]
    batch = retrieval(None, examples.stack(rows))
    out = jax.device_get(
      explain.predict(trained.model, params, batch, vocab_size)
    )
    best = np.zeros((len(rows), vocab_size))
    np.put_along_axis(best, out.tokens[:, 0], out.token_log_probs[:, 0], axis=1)
    return best.reshape(*places.shape, vocab_size)

  @functools.cache
  def read(name: str) -> np.ndarray:
    ids = np.flatnonzero(hashes != np.uint64(name or 0))
    rows = data.blocks.token_rows(ids)
    return np.concatenate([np.append(x.astype(np.int64), -1) for x in rows])

  return referee.Scorer(
    log_probs=log_probs,
    memory=read,
    num_bytes=lambda: {
      'weights': reached.num_bytes(params),
      'memory': reached.files_bytes(data.root, trained.index_folder),
      # of the host, and of the index's embedder
      'caches': reached.num_bytes(trained.params, version.params) + of_search,
    },
    causal=False,
    max_tokens=layout.query_tokens,
    batch_size=2,
  )


def _without_padding(row: np.ndarray, layout: examples.Layout) -> np.ndarray:
  return row[: np.flatnonzero(row != layout.pad_id).max(initial=0) + 1]
