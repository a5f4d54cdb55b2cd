# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Training documents that nearly stand in the evaluation set.

Borgeaud et al. 2021, section 2.1 and appendix A: documents whose 13-grams have a
Jaccard similarity of 0.8 or more with those of an evaluation document leave the
training set, and so the datastore. MinHash and locality-sensitive hashing (the
package rensa) name candidates; what is dropped was compared exactly. Grams are of
words between whitespace, in lower case, so that the tokenizer does not matter.
"""

from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
import functools
import os

from jaxtyping import UInt64
import numpy as np

from retrieval import chunks as chunks_lib
from retrieval import store
from retrieval import tokenizers
from retrieval import tokens as tokens_lib

KIND = 'near_duplicates'
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
# Grams that are equal in 4 numbers of a signature make a candidate. Of pairs at
# 0.8 exactly, 1 in 2e7 escapes 32 such bands; of pairs at 0.2, 1 in 20 is one.
_BAND_ROWS = 4
_BATCH = 256


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
  """What counts as a near-duplicate.

  Attributes:
    threshold: least Jaccard similarity, above 0 and at most 1.
    ngram: words of a gram.
    num_permutations: numbers of a MinHash signature, a multiple of 4.
    seed: of the signatures.
  """

  threshold: float = 0.8
  ngram: int = 13
  num_permutations: int = 128
  seed: int = 0

  def __post_init__(self):
    """Checks the ranges."""
    for name, ok, expected in (
      ('threshold', 0 < self.threshold <= 1, 'in (0, 1]'),
      ('ngram', self.ngram >= 1, '>= 1'),
      (
        'num_permutations',
        self.num_permutations > 0 and self.num_permutations % _BAND_ROWS == 0,
        f'a multiple of {_BAND_ROWS}',
      ),
      ('seed', self.seed >= 0, '>= 0'),
    ):
      if not ok:
        raise ValueError(
          f'deduplicate.{name} {getattr(self, name)}: expected {expected}.'
        )


_hash_word = functools.lru_cache(1 << 18)(tokens_lib.hash_id)


def hash_grams(text: str, ngram: int) -> UInt64[np.ndarray, ' grams']:
  """The set of a text's n-grams of words, as ascending hashes.

  Args:
    text: of a document.
    ngram: words of a gram; a shorter text is one gram.

  Returns:
    [grams] uint64; none for a text without words.
  """
  words = text.lower().split()
  hashes = np.asarray([_hash_word(word) for word in words], np.uint64)
  n = min(ngram, len(hashes))
  count = len(hashes) - n + 1 if n else 0
  grams = np.zeros(count, np.uint64)
  for i in range(n):
    grams = grams * _MULTIPLIER + hashes[i : i + count]
  return np.unique(grams)


def jaccard(a: UInt64[np.ndarray, ' a'], b: UInt64[np.ndarray, ' b']) -> float:
  """Shared grams over all grams of two sets; 0 for two empty ones."""
  shared = len(np.intersect1d(a, b, assume_unique=True))
  return shared / max(len(a) + len(b) - shared, 1)


class _Index:
  """The evaluation documents, to be asked for what resembles a document."""

  def __init__(self, settings: Settings):
    import rensa

    self._settings, self._rensa = settings, rensa
    size = settings.num_permutations
    self._lsh = rensa.RMinHashLSH(
      threshold=settings.threshold,
      num_perm=size,
      num_bands=size // _BAND_ROWS,
    )
    self._grams: dict[int, np.ndarray] = {}

  def _sign(self, grams: np.ndarray):
    settings = self._settings
    data = grams.astype('<u8').tobytes()
    signature = self._rensa.RMinHash(
      num_perm=settings.num_permutations, seed=settings.seed
    )
    signature.update([data[i : i + 8] for i in range(0, len(data), 8)])
    return signature

  def add(self, document: int, grams: np.ndarray) -> None:
    if len(grams):
      self._lsh.insert(document, self._sign(grams))
      self._grams[document] = grams

  def nearest(self, grams: np.ndarray) -> tuple[float, int]:
    """Similarity and number of the most similar one; (0, -1) if none is."""
    if not len(grams) or not self._grams:
      return 0.0, -1
    found = self._lsh.query(self._sign(grams))
    pairs = ((jaccard(grams, self._grams[d]), -d) for d in found)
    similarity, number = max(pairs, default=(0.0, 1))
    return similarity, -number


def build_duplicate_store(
  path: str | os.PathLike,
  tokens: tokens_lib.TokenStore,
  tokenizer: tokenizers.Tokenizer,
  *,
  valid_fraction: float,
  settings: Settings,
  progress: Callable[[int, int], None] | None = None,
) -> store.Store:
  """Lists the training documents to drop; resumes at the first missing shard.

  Args:
    path: where the list will stand.
    tokens: every document.
    tokenizer: that made it.
    valid_fraction: share of documents that belong to 'valid'.
    settings: what counts as a near-duplicate.
    progress: called with (training documents done, documents in all).

  Returns:
    A published store of `document` [n] int64, the documents to drop by rising
    number, `duplicate_of` [n] int64, and `similarity` [n] float32.

  Raises:
    ValueError: for another tokenizer.
  """
  import rensa

  tokens.check_tokenizer(tokenizer)
  fields = {
    'tokens': tokens.store.fingerprint,
    'valid_fraction': valid_fraction,
    'algorithm': rensa.RMinHash.ALGORITHM_VERSION,
    **dataclasses.asdict(settings),
  }
  writer = store.StoreWriter(path, KIND, fields)
  if writer.published:
    return store.Store.open(path, KIND, fields)
  shards, index = tokens.store.num_shards, None
  read = functools.partial(
    _documents, tokens, tokenizer, valid_fraction, settings.ngram
  )
  done = 0
  for i in writer.missing(shards):
    if index is None:
      index = _Index(settings)
      for shard in range(shards):
        for document, grams in read(shard, 'valid'):
          index.add(document, grams)
    found = []
    for document, grams in read(i, 'train'):
      similarity, other = index.nearest(grams)
      if similarity >= settings.threshold:
        found.append((document, other, similarity))
      done += 1
      if progress and not done % _BATCH:
        progress(done, tokens.num_documents)
    columns = list(zip(*found, strict=True)) or [(), (), ()]
    names = (('document', np.int64), ('duplicate_of', np.int64))
    names += (('similarity', np.float32),)
    writer.write(
      i,
      {
        name: np.asarray(column, dtype)
        for (name, dtype), column in zip(names, columns, strict=True)
      },
    )
  return writer.publish(shards, {'tokens': tokens.path.name})


def _documents(
  tokens, tokenizer, valid_fraction, ngram, shard, split
) -> Iterator[tuple[int, np.ndarray]]:
  """Numbers and grams of the documents of one split in one shard."""
  first = int(sum(tokens.store.rows('token_end')[:shard]))
  hashes = np.asarray(tokens.store.shard(shard, 'id_hash'))
  chosen = chunks_lib.in_split(hashes, split, valid_fraction)
  for row in np.flatnonzero(chosen):
    document = first + int(row)
    if tokens.with_text:
      text = tokens.text_bytes(document).decode()
    else:
      text = tokenizer.decode(tokens.document(document)[1:])
    yield document, hash_grams(text, ngram)
