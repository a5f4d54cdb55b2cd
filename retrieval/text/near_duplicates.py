# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Training documents that nearly equal an evaluation document.

Borgeaud et al. 2021, section 2.1 and appendix A: documents whose 13-grams have
a Jaccard similarity of 0.8 or more with those of any evaluation document leave
the training set, and so the datastore. An index of the evaluation documents'
grams counts those shared, so that no pair is missed. Grams are of lower-case
words between whitespace, so that the tokenizer does not matter.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
import contextlib
import dataclasses
import functools
import os

from jaxtyping import UInt64
import numpy as np

from retrieval import settings as settings_lib, tokenization
from retrieval.store import array_store, executors, shards
from retrieval.text import tokens as tokens_lib

KIND = 'near_duplicates'
_COMPARED = 'evaluation'
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_BATCH = 256
_NGRAM = 13  # words


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
  """Definition of a near-duplicate."""

  # least Jaccard similarity; 0: nothing is looked for
  threshold: settings_lib.Share = 0.8

  __post_init__ = settings_lib.check


_hash_word = functools.lru_cache(1 << 18)(tokens_lib.hash_id)


def hash_grams(text: str) -> UInt64[np.ndarray, ' grams']:
  """Hash the n-grams of a text's words; one of fewer words is one gram."""
  words = text.lower().split()
  hashes = np.asarray([_hash_word(word) for word in words], np.uint64)
  n = min(_NGRAM, len(hashes))
  count = len(hashes) - n + 1 if n else 0
  grams = np.zeros(count, np.uint64)
  for i in range(n):
    grams = grams * _MULTIPLIER + hashes[i : i + count]
  return np.unique(grams)


class Index:
  """Evaluation documents, to be searched for the most similar one."""

  def __init__(self, documents: Iterable[tuple[int, np.ndarray]]):
    """Take numbers and grams of documents."""
    numbers, grams = list(zip(*documents, strict=True)) or [(), ()]
    self._numbers = np.asarray(numbers, np.int64)
    self._sizes = np.asarray([len(x) for x in grams], np.int64)
    every = np.concatenate([np.zeros(0, np.uint64), *grams])
    order = np.argsort(every, kind='stable')
    self._grams = every[order]
    owner = np.repeat(np.arange(len(numbers), dtype=np.int32), self._sizes)
    self._owner = owner[order]

  def nearest(self, grams: UInt64[np.ndarray, ' grams']) -> tuple[float, int]:
    """Jaccard similarity and number of the most similar document, or (0, -1).

    Of equally similar ones the first is taken.
    """
    first, last = (
      np.searchsorted(self._grams, grams, side) for side in ('left', 'right')
    )
    shared_grams = np.flatnonzero(last > first)
    if not len(shared_grams):
      return 0.0, -1
    spans = zip(
      first[shared_grams].tolist(), last[shared_grams].tolist(), strict=True
    )
    owners = np.concatenate([self._owner[a:b] for a, b in spans])
    owners, shared = np.unique(owners, return_counts=True)
    similarity = shared / (len(grams) + self._sizes[owners] - shared)
    best = int(similarity.argmax())
    return float(similarity[best]), int(self._numbers[owners[best]])


def build_duplicate_store(
  path: str | os.PathLike,
  tokens: tokens_lib.TokenStore,
  tokenizer: tokenization.Tokenizer,
  *,
  valid_fraction: float,
  settings: Settings,
  evaluation: Sequence[tokens_lib.TokenStore] = (),
  added: Sequence[str] = (),
  executor: executors.Executor | None = None,
  progress: Callable[[int, int], None] | None = None,
) -> array_store.Store:
  """List the training documents to drop; resume at the first missing shard.

  A published list of the same settings stays, whatever evaluation sets it was
  compared with: `compared_with` names them. ValueError for one of other settings, and
  for another tokenizer.

  Args:
    valid_fraction: share of documents that are held out, 'valid' and 'test'.
    evaluation: token stores of evaluation sets from other corpora, in folders
      beside `tokens`; training documents are compared with them as with
      'valid'.
    added: ids of documents added for retrieval: never held out or dropped.

  Returns:
    A published store of `document` [n] int64, the documents to drop in
    ascending order, `duplicate_of` [n] int64, whose numbers continue after
    those of `tokens` through each of `evaluation`, and `similarity` [n]
    float32.
  """
  for source in (tokens, *evaluation):
    source.check_tokenizer(tokenizer)
  fields = {
    'tokens': tokens.store.fingerprint,
    'valid_fraction': valid_fraction,
    'ngram': _NGRAM,
    **dataclasses.asdict(settings),
  }
  compared = [source.store.fingerprint for source in evaluation]
  with contextlib.suppress(FileNotFoundError):
    compared = array_store.Store.open(path, KIND).fields.get(_COMPARED)
  if compared:
    fields[_COMPARED] = compared
  if added:
    fields['added'] = sorted(added)
  read = functools.partial(
    _documents, tokenizer, valid_fraction, tokens_lib.hash_ids(added)
  )
  index = executors.Lazy(_index, read, tokens, evaluation)

  def make(i, shown):
    duplicates = []
    for n, (document, grams) in enumerate(read(tokens, i, 'train')):
      similarity, other = index.nearest(grams)
      if similarity >= settings.threshold:
        duplicates.append((document, other, similarity))
      if shown and not n % _BATCH:
        shown(n, counts[i])
    document, other, similarity = (
      list(zip(*duplicates, strict=True)) or [()] * 3
    )
    return {
      'document': np.asarray(document, np.int64),
      'duplicate_of': np.asarray(other, np.int64),
      'similarity': np.asarray(similarity, np.float32),
    }

  meta = {'tokens': tokens.path.name}
  if evaluation:
    meta[_COMPARED] = [source.path.name for source in evaluation]
  counts = tokens.store.rows('token_end')
  return shards.build_store(
    path,
    KIND,
    fields,
    counts,
    make,
    executor=executor,
    progress=progress,
    meta=meta,
  )


def compared_with(duplicates: array_store.Store) -> dict[str, str]:
  """Evaluation sets of a list but 'valid': folder of tokens -> fingerprint."""
  names = duplicates.meta.get(_COMPARED, [])
  return dict(zip(names, duplicates.fields.get(_COMPARED, []), strict=True))


def _index(read, tokens, evaluation) -> Index:
  """Make the index of all evaluation documents, numbered on from `tokens`."""
  stores = [(tokens, 'valid'), *((source, 'all') for source in evaluation)]
  bases = np.cumsum([0, *(source.num_documents for source, _ in stores)])
  return Index(
    (int(base) + document, grams)
    for base, (source, split) in zip(bases, stores, strict=False)
    for shard in range(source.store.num_shards)
    for document, grams in read(source, shard, split)
  )


def _documents(
  tokenizer, valid_fraction, added, tokens, shard, split
) -> Iterator[tuple[int, np.ndarray]]:
  """Numbers and grams of the documents of one split in one shard."""
  first = int(sum(tokens.store.rows('token_end')[:shard]))
  hashes = np.asarray(tokens.store.shard(shard, 'id_hash'))
  chosen = tokens_lib.in_split(hashes, split, valid_fraction)
  if split != 'all':
    chosen &= ~np.isin(hashes, added)
  for row in np.flatnonzero(chosen):
    document = first + int(row)
    if tokens.with_text:
      text = tokens.text(document)
    else:
      text = tokenizer.decode(tokens.document(document)[1:])
    yield document, hash_grams(text)
