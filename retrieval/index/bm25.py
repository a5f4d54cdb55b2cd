# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""BM25 over the texts of blocks: the baseline of every trained retriever.

Robertson's BM25 in Lucene's form: the sum over a question's words of idf * tf /
(tf + k1 * (1 - b + b * length / mean length)), idf = ln(1 + (N - n + .5) / (n +
.5)). The bm25s package computes the weights once, when an index is built. Its
import starts a JAX backend, so only `build` imports it.

Dimension key: N blocks, V words of the vocabulary, P pairs of word and block.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
import dataclasses
import hashlib
import itertools
import os
import re
import unicodedata

from jaxtyping import Float32, Int64
import numpy as np

from retrieval import settings
from retrieval.searchers import base
from retrieval.store import sharded_array, shards, store

KIND = 'bm25'
_SCHEMA = 1  # version of the way from text to words
# Lucene's list for English.
STOP_WORDS = tuple(
  'a an and are as at be but by for if in into is it no not of on or such that '
  'the their then there these they this to was will with'.split()
)
_WORD = re.compile(r'\w+')


@dataclasses.dataclass(frozen=True)
class Bm25Config:
  """Weights of words; defaults are Anserini's for passages."""

  # saturation of repeated words; a larger value saturates later
  k1: settings.NotNegative = 0.9
  b: settings.Share = 0.4  # penalty of long blocks
  stop_words: tuple[str, ...] = STOP_WORDS  # ignored words in lower case

  __post_init__ = settings.check


class Bm25:
  """An index from words to blocks.

  Attributes:
    num_blocks: number of blocks, blocks without words included.
    fingerprint: hash of everything that decides its results.
  """

  def __init__(
    self,
    config: Bm25Config,
    words: Mapping[str, int],
    arrays: Mapping[str, np.ndarray],
    num_blocks: int,
    texts_hash: str,
  ):
    """Take the parts of an index from `build` or `load`.

    Args:
      words: word -> number, 0 to V - 1 in this order.
      arrays: starts [V + 1] int64, the first pair of each word; blocks [P]
        int32, ascending for each word; weights [P] float32.
      num_blocks: N.
    """
    self.config = config
    self.num_blocks = num_blocks
    self._words = words
    self._starts = arrays['starts']
    self._blocks = arrays['blocks']
    self._weights = arrays['weights']
    self._fields = {
      'tokens': _SCHEMA,
      'k1': config.k1,
      'b': config.b,
      'stop_words': list(config.stop_words),
      'texts': texts_hash,
    }
    self.fingerprint = store.fingerprint(self._fields)

  @classmethod
  def build(
    cls,
    texts: Iterable[str],
    titles: Iterable[str] | None = None,
    config: Bm25Config | None = None,
  ) -> 'Bm25':
    """Build an index in memory; block ids are positions in `texts`.

    Args:
      texts: [N] texts of the blocks, read once.
      titles: [N] titles, prepended to the texts; None for none.
      config: weights of words; None for the defaults.

    Raises:
      ValueError: for other than N titles.
    """
    config = config or Bm25Config()
    hashed = hashlib.sha256()
    skip, words, rows = frozenset(config.stop_words), {}, []
    for text in texts if titles is None else titled(titles, texts):
      data = text.encode('utf-8', 'surrogatepass')
      hashed.update(len(data).to_bytes(8, 'little') + data)
      rows.append(
        [
          words.setdefault(w, len(words))
          for w in words_of(text)
          if w not in skip
        ]
      )
    arrays = _weigh(rows, len(words), config)
    return cls(config, words, arrays, len(rows), hashed.hexdigest()[:32])

  def search(
    self, queries: Sequence[str] | np.ndarray, k: int
  ) -> tuple[Int64[np.ndarray, 'b k'], Float32[np.ndarray, 'b k']]:
    """Find the k best blocks of each query; ties go to the lower id.

    Returns:
      ids: [b, k] int64, best first; -1 where fewer share a word with the query.
      scores: [b, k] float32, above 0; -inf there.

    Raises:
      ValueError: for k < 1.
    """
    if k < 1:
      raise ValueError(f'k={k}: expected at least 1.')
    ids, scores = base.nothing(len(queries), k)
    for row, query in enumerate(queries):
      found = self._score(query)
      (blocks,) = np.nonzero(found)
      first = blocks[best(found[blocks], k)]
      ids[row, : len(first)] = first
      scores[row, : len(first)] = found[first]
    return ids, scores

  def _score(self, query: str) -> np.ndarray:
    """Return scores [N] float32 of all blocks; repeated words count twice."""
    scores = np.zeros(self.num_blocks, np.float32)
    for word in words_of(query):
      number = self._words.get(word)
      if number is not None:
        at = slice(self._starts[number], self._starts[number + 1])
        blocks = self._blocks[at]
        file = getattr(blocks, 'filename', 'BM25')
        sharded_array.in_range(blocks, 0, self.num_blocks, file)
        scores[blocks] += self._weights[at]
    return scores

  def save(self, path: str | os.PathLike) -> None:
    """Write the index as a store, unless `path` holds the same index.

    Raises:
      ValueError: when `path` holds something else.
    """
    arrays = {
      'words': np.frombuffer('\n'.join(self._words).encode(), np.uint8),
      'starts': self._starts,
      'blocks': self._blocks,
      'weights': self._weights,
    }
    meta = {'num_blocks': self.num_blocks}
    shards.build_store(
      path, KIND, self._fields, [0], lambda *_: arrays, meta=meta
    )

  @classmethod
  def load(cls, path: str | os.PathLike) -> 'Bm25':
    """Load a saved index, memory-mapped.

    Raises:
      ValueError: when it is damaged or of another version.
    """
    found = store.Store.open(path, KIND)
    fields = found.fields
    if fields.get('tokens') != _SCHEMA:
      raise ValueError(f'{path}: made by another version; build it again.')
    names = ('words', 'starts', 'blocks', 'weights')
    arrays = {name: found.shard(0, name) for name in names}
    text = arrays['words'].tobytes().decode()
    words = {w: i for i, w in enumerate(text.split('\n') if text else ())}
    starts = arrays['starts']
    same = len(arrays['blocks']) == len(arrays['weights']) == starts[-1]
    if not same or len(starts) != len(words) + 1 or (np.diff(starts) < 0).any():
      raise ValueError(
        f'{path}: damaged, its arrays do not fit; build it again.'
      )
    config = Bm25Config(fields['k1'], fields['b'], tuple(fields['stop_words']))
    return cls(config, words, arrays, found.meta['num_blocks'], fields['texts'])


def titled(titles: Iterable[str], texts: Iterable[str]) -> Iterator[str]:
  """Yield each text below its title; raises ValueError for other numbers."""
  pairs = itertools.zip_longest(titles, texts)
  for number, (title, text) in enumerate(pairs):
    if title is None or text is None:
      raise ValueError(f'Block {number} has a title or a text, not both.')
    yield f'{title}\n{text}'


def words_of(text: str) -> list[str]:
  """Return words in lower case; a composed letter equals its parts."""
  return _WORD.findall(unicodedata.normalize('NFKC', text).lower())


def _weigh(
  rows: list[list[int]], num_words: int, config: Bm25Config
) -> dict[str, np.ndarray]:
  """Return the arrays of Bm25: the score of each word of each block."""
  if not num_words:
    return {
      'starts': np.zeros(1, np.int64),
      'blocks': np.zeros(0, np.int32),
      'weights': np.zeros(0, np.float32),
    }
  import bm25s

  model = bm25s.BM25(k1=config.k1, b=config.b, method='lucene')
  # Rows refer to one object for each number, which saves memory.
  found = model.build_index_from_ids(
    range(num_words), rows, show_progress=False
  )
  return {
    'starts': found['indptr'],
    'blocks': found['indices'],
    'weights': found['data'],
  }


def best(scores: np.ndarray, k: int) -> np.ndarray:
  """Return the positions of the k highest scores; ties by the lower one."""
  if len(scores) <= k:
    return np.argsort(-scores, kind='stable')
  floor = np.partition(scores, -k)[-k]
  (candidates,) = np.nonzero(scores >= floor)
  order = np.argsort(-scores[candidates], kind='stable')
  return candidates[order[:k]]
