# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The token store: documents as token rows, with titles and byte counts.

Every row starts with the tokenizer's BOS, which takes no bytes: the model
predicts the first real token from it. A store may keep the texts as well, with
the bytes of each token, so that texts can be read again that a tokenizer such
as WordPiece loses.
"""

from collections.abc import Callable, Sequence
import functools
import hashlib
import itertools
import os

import numpy as np

from retrieval import arguments, tokenization
from retrieval.store import array_store, executors, sharded_array, shards
from retrieval.text import columns, corpus as corpus_lib

HELD_OUT = ('valid', 'test')
SPLITS = ('train', *HELD_OUT, 'all')
KIND = 'tokens'


def document_text(document: corpus_lib.Document, with_title: bool) -> str:
  """The text that is tokenized: the body, headed by its title if asked."""
  if with_title and document.title:
    return f'{document.title}\n\n{document.text}'
  return document.text


def hash_bytes(data: bytes) -> int:
  """Hash bytes to 64 bits."""
  return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), 'little')


def hash_id(document_id: str) -> int:
  """Hash a document's id to 64 bits."""
  return hash_bytes(document_id.encode())


def hash_ids(texts: Sequence[str]) -> np.ndarray:
  """Hash documents' ids, or other texts: [n] uint64."""
  texts = arguments.listed(texts, 'texts')
  return np.array([*map(hash_id, texts)], np.uint64)


def in_split(
  id_hash: np.ndarray,
  split: str,
  valid_fraction: float,
  added: Sequence[str] = (),
  test_fraction: float = 0.0,
) -> np.ndarray:
  """Tell which documents belong to a split of `SPLITS`: [documents] bool.

  The shares `valid_fraction` and `test_fraction` of the documents are held out, by the
  hash of their id; documents with an id in `added` never are.
  """
  place = (id_hash >> np.uint64(32)) / 2**32
  held_out = place < valid_fraction + test_fraction
  held_out &= ~np.isin(id_hash, hash_ids(added))
  return {
    'train': ~held_out,
    'valid': held_out & (place < valid_fraction),
    'test': held_out & (place >= valid_fraction),
    'all': np.ones_like(held_out),
  }[split]


def _ends(parts: Sequence[bytes]) -> np.ndarray:
  return np.cumsum([len(part) for part in parts], dtype=np.int64)


def span_of(ends: sharded_array.ShardedArray, row: int) -> tuple[int, slice]:
  """Return a row's shard and its start and end offsets."""
  [shard], [i] = (x.tolist() for x in ends.locate(np.asarray([row])))
  values = ends.shard(shard)
  return shard, slice(int(values[i - 1]) if i else 0, int(values[i]))


def _encode_shard(
  tokenizer: tokenization.Tokenizer | executors.Lazy,
  with_title: bool,
  with_text: bool,
  metadata: Sequence[str],
  documents: Sequence[corpus_lib.Document],
) -> dict[str, np.ndarray]:
  """Tokenize documents into the arrays of one shard."""
  texts = [document_text(document, with_title) for document in documents]
  encodings = tokenizer.encode_batch(texts)
  dtype = np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.uint32
  bos = np.asarray([tokenizer.bos_id], dtype)
  rows = [np.concatenate([bos, e.ids.astype(dtype)]) for e in encodings]
  ids = [document.id.encode() for document in documents]
  titles = [document.title.encode() for document in documents]
  arrays = {}
  if with_text:
    encoded = [text.encode() for text in texts]
    none = np.zeros((1, 2), np.int64)  # the BOS
    spans = [span for e in encodings for span in (none, e.offsets)]
    arrays = {
      'text': np.frombuffer(b''.join(encoded), np.uint8),
      'text_end': _ends(encoded),
      'token_bytes': np.concatenate(spans).astype(np.int32),
    }
  arrays |= columns.encode([x.metadata for x in documents], metadata)
  return arrays | {
    'tokens': np.concatenate(rows),
    'token_end': np.cumsum([len(row) for row in rows], dtype=np.int64),
    'num_bytes': np.asarray([len(t.encode()) for t in texts], np.int64),
    'num_words': np.asarray([len(t.split()) for t in texts], np.int64),
    'id_hash': np.asarray([hash_id(d.id) for d in documents], np.uint64),
    'id_text': np.frombuffer(b''.join(ids), np.uint8),
    'id_end': _ends(ids),
    'title_text': np.frombuffer(b''.join(titles), np.uint8),
    'title_end': _ends(titles),
  }


def build_token_store(
  path: str | os.PathLike,
  corpus: corpus_lib.Corpus,
  tokenizer_path: str | os.PathLike,
  *,
  with_title: bool = True,
  with_text: bool = False,
  documents_per_shard: int = 2048,
  num_processes: int = 1,
  executor: executors.Executor | None = None,
  progress: Callable[[int, int], None] | None = None,
) -> 'TokenStore':
  """Tokenize a corpus; resume where an earlier call was killed.

  Memory holds at most two shards a worker, whatever the corpus's size.

  Args:
    tokenizer_path: a path for `tokenization.load_tokenizer`.
    with_title: whether the title heads the text.
    with_text: whether to keep texts and the bytes of each token.
    num_processes: processes of this machine that share the work.
    executor: where the shards are made instead.
    progress: called with (documents taken, 0 until the total is known).

  Raises:
    ValueError: for an empty corpus or a bad record.
  """
  tokenizer = tokenization.load_tokenizer(tokenizer_path)
  fields = {
    'corpus': corpus.fingerprint(),
    'tokenizer': tokenizer.fingerprint,
    'with_title': with_title,
    'documents_per_shard': documents_per_shard,
  }
  if with_text:
    fields['with_text'] = True
  if metadata := list(corpus.fields.metadata or ()):
    fields['metadata'] = metadata
  writer = shards.StoreWriter(path, KIND, fields)
  if writer.published:
    return TokenStore(path)
  done, num_shards = 0, 0
  executor = executor or executors.local(num_processes)
  documents = iter(corpus)
  next_batch = lambda: [*itertools.islice(documents, documents_per_shard)]  # noqa: E731
  first = next_batch()
  one_shard = len(first) < documents_per_shard
  if one_shard and isinstance(executor, executors.Processes):
    executor = executors.Inline()  # done before a process has started

  def calls():
    nonlocal done, num_shards
    batches = itertools.chain([first], iter(next_batch, []))
    for batch in filter(None, batches):
      num_shards += 1
      if not writer.has(num_shards - 1):
        yield num_shards - 1, batch
      done += len(batch)
      if progress:
        progress(done, 0)

  lazy = executors.Lazy(tokenization.load_tokenizer, tokenizer_path)
  encode = functools.partial(
    _encode_shard, lazy, with_title, with_text, metadata
  )
  for _ in shards.write_all(writer, executor, encode, calls()):
    pass  # `calls` tells the progress
  if progress:
    progress(done, done)
  meta = {
    'num_documents': done,
    'vocab_size': tokenizer.vocab_size,
    'pad_id': tokenizer.pad_id,
    'bos_id': tokenizer.bos_id,
    'skipped': dict(sorted(corpus.skipped.items())),
  }
  writer.publish(num_shards, meta)
  return TokenStore(path)


class TokenStore:
  """Documents as token rows, memory-mapped, perhaps `with_text` and `metadata`."""

  def __init__(self, path: str | os.PathLike | array_store.Store):
    self.store = array_store.Store.open(path, KIND)
    self.path = self.store.path
    self.vocab_size = self.store.meta['vocab_size']
    self.tokenizer_fingerprint = self.store.fields.get('tokenizer', '')
    array = self.store.array
    self.tokens = array('tokens')
    self._token_end = array('token_end')
    self.num_documents = len(self._token_end)
    self.num_bytes, self.num_words = array('num_bytes'), array('num_words')
    self.id_hash = array('id_hash')
    self._text = {
      name: (array(f'{name}_end'), array(f'{name}_text'))
      for name in ('id', 'title')
    }
    self.metadata = columns.Columns(self.store)
    self.with_text = self.store.fields.get('with_text', False)
    if self.with_text:
      self._text['text'] = (array('text_end'), array('text'))
      self._token_bytes = self.store.array('token_bytes')

  def check_tokenizer(self, tokenizer: tokenization.Tokenizer) -> None:
    """Raise ValueError unless `tokenizer` made this store."""
    if tokenizer.fingerprint != self.tokenizer_fingerprint:
      raise ValueError(
        f'{self.path}: tokenized with {self.tokenizer_fingerprint}, but the '
        f'tokenizer is {tokenizer.fingerprint}.'
      )

  def locate(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shard and first position in the shard's tokens of documents [...]."""
    shards, rows = self._token_end.locate(documents)
    before = self._token_end[np.maximum(documents - 1, 0)]
    return shards, np.where(rows > 0, before, 0)

  def document(self, i: int) -> np.ndarray:
    """Tokens of document `i`, BOS first: [length] uint16 or uint32."""
    shard, span = span_of(self._token_end, i)
    return self.tokens.shard(shard)[span]

  def document_id(self, i: int) -> str:
    """Return the id of document `i`."""
    return self.decode(self._bytes('id', i))

  def title(self, i: int) -> str:
    """Return the title of document `i`."""
    return self.decode(self._bytes('title', i))

  def decode(self, data: bytes) -> str:
    """Decode UTF-8 of this store; ValueError if it is damaged."""
    try:
      return data.decode()
    except UnicodeDecodeError as e:
      raise ValueError(f'{self.path}: damaged text ({e}).') from None

  def text_bytes(self, i: int) -> bytes:
    """The text of document `i` in UTF-8, exactly the source's."""
    return self._bytes('text', i)

  def text(self, i: int) -> str:
    """Return the text of document `i`."""
    return self.decode(self.text_bytes(i))

  def token_bytes(self, i: int) -> np.ndarray:
    """First and past-last byte of each token of document `i`: [length, 2]."""
    shard, span = span_of(self._token_end, i)
    return self._token_bytes.shard(shard)[span]

  def _bytes(self, name: str, i: int) -> bytes:
    end, text = self._text[name]
    shard, span = span_of(end, i)
    return bytes(text.shard(shard)[span])
