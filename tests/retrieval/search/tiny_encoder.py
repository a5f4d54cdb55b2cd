# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""An encoder of tokens without a model."""

import contextlib
from unittest import mock
import zlib

import numpy as np

from retrieval.nn import max_sim
from retrieval.search import residual_codes, token_store

D, Q = 8, 12


@contextlib.contextmanager
def small_shards():
  """Sample 30 passages for a codec, and write 20 in a shard."""
  sizes = {'sample_blocks': 30, 'shard_blocks': 20}
  with mock.patch.dict(token_store.SETTINGS, sizes):
    yield


class Words:
  """A vector for each word, a little different at each position."""

  fingerprint = 'words'

  def __init__(self):
    self.encoded = []

  def vectors(self, text):
    """Vectors of the words of a text, at least one."""
    rows = []
    for i, word in enumerate(text.split() or ['[CLS]']):
      rng = np.random.default_rng(zlib.crc32(word.encode()))
      rows.append(rng.standard_normal(D) + 0.1 * np.sin(i + np.arange(D)))
    return residual_codes.unit(np.asarray(rows, np.float32))

  def queries(self, texts):
    """Vectors of queries, cut or repeated to Q."""
    return np.stack([np.resize(self.vectors(text), (Q, D)) for text in texts])

  def passages(self, texts, progress=None):
    """Vectors of passages; remembers what it encoded."""
    self.encoded += texts
    found = [self.vectors(text) for text in texts]
    if progress:
      progress(len(texts), len(texts))
    return max_sim.TokenVectors(
      np.concatenate(found), np.cumsum([len(x) for x in found])
    )


def vectors_of(index):
  """Return the decompressed vectors [tokens, D] of each passage of an index."""
  return [
    part
    for shard in range(index.store.num_shards)
    for ends, *stored in [index._arrays(shard, 'ends', 'centroids', 'codes')]
    for part in np.split(index.codec.decode(*stored), ends[:-1])
  ]
