# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""The token store: documents as token rows, with titles and byte counts.

Every document's row starts with the tokenizer's BOS, which stands for no bytes:
it gives the first real token a place from which to be predicted.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import concurrent.futures
import hashlib
import itertools
import multiprocessing
import multiprocessing.connection
import os
import threading

import numpy as np

from retrieval import corpus as corpus_lib
from retrieval import sharded_array
from retrieval import store
from retrieval import tokenizers

KIND = 'tokens'


def document_text(document: corpus_lib.Document, with_title: bool) -> str:
  """The text that is tokenized: the body, headed by its title if asked."""
  if with_title and document.title:
    return f'{document.title}\n\n{document.text}'
  return document.text


def hash_id(document_id: str) -> int:
  """A 64-bit hash of a document's id, comparable between stores."""
  digest = hashlib.blake2b(document_id.encode(), digest_size=8).digest()
  return int.from_bytes(digest, 'little')


def _ends(parts: Sequence[bytes]) -> np.ndarray:
  return np.cumsum([len(part) for part in parts], dtype=np.int64)


def encode_shard(
  documents: Sequence[corpus_lib.Document],
  tokenizer: tokenizers.Tokenizer,
  with_title: bool,
) -> dict[str, np.ndarray]:
  """Tokenizes documents into the arrays of one shard."""
  texts = [document_text(document, with_title) for document in documents]
  encodings = tokenizer.encode_batch(texts)
  dtype = np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.uint32
  bos = np.asarray([tokenizer.bos_id], dtype)
  rows = [np.concatenate([bos, e.ids.astype(dtype)]) for e in encodings]
  ids = [document.id.encode() for document in documents]
  titles = [document.title.encode() for document in documents]
  return {
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


def _batches(items: Iterable, size: int) -> Iterator[list]:
  iterator = iter(items)
  while batch := list(itertools.islice(iterator, size)):
    yield batch


_WORKER = {}


def _start_worker(path, kind, fields, tokenizer_path, with_title):
  _WORKER['writer'] = store.StoreWriter(path, kind, fields)
  _WORKER['tokenizer'] = tokenizers.load_tokenizer(tokenizer_path)
  _WORKER['with_title'] = with_title


def _start_pool_worker(*setup) -> None:
  threading.Thread(target=_exit_with_parent, daemon=True).start()
  _start_worker(*setup)


def _exit_with_parent() -> None:
  """Ends this process once its parent is gone, even if that was killed."""
  multiprocessing.connection.wait([multiprocessing.parent_process().sentinel])
  os._exit(1)


def _write_shard(index: int, documents: list[corpus_lib.Document]) -> int:
  arrays = encode_shard(documents, _WORKER['tokenizer'], _WORKER['with_title'])
  _WORKER['writer'].write(index, arrays)
  return len(documents)


def build_token_store(
  path: str | os.PathLike,
  corpus: corpus_lib.Corpus,
  tokenizer_path: str | os.PathLike,
  *,
  with_title: bool = True,
  documents_per_shard: int = 2048,
  num_processes: int = 1,
  progress: Callable[[int, int], None] | None = None,
) -> 'TokenStore':
  """Tokenizes a corpus; resumes where an earlier call was killed.

  Memory holds at most 2 x `num_processes` shards, whatever the corpus's size.

  Args:
    path: where the store will stand.
    corpus: documents in a fixed order.
    tokenizer_path: a file that `tokenizers.load_tokenizer` reads.
    with_title: whether the title heads the text.
    documents_per_shard: documents in each shard.
    num_processes: tokenizing processes; 1 works in this one.
    progress: called with (documents done, 0: their number is not known).

  Returns:
    The published store.

  Raises:
    ValueError: for an empty corpus or whatever the corpus refuses.
  """
  tokenizer = tokenizers.load_tokenizer(tokenizer_path)
  fields = {
    'corpus': corpus.fingerprint(),
    'tokenizer': tokenizer.fingerprint,
    'with_title': with_title,
    'documents_per_shard': documents_per_shard,
  }
  writer = store.StoreWriter(path, KIND, fields)
  if writer.published:
    return TokenStore(path)
  setup = (path, KIND, fields, tokenizer_path, with_title)
  done, num_shards = 0, 0
  pool = _Inline(setup) if num_processes <= 1 else _pool(setup, num_processes)
  with pool:
    pending = set()
    for num_shards, batch in enumerate(  # noqa: B007
      _batches(corpus, documents_per_shard), start=1
    ):
      if writer.has(num_shards - 1):
        done += len(batch)
      else:
        pending.add(pool.submit(_write_shard, num_shards - 1, batch))
      while len(pending) >= 2 * num_processes:
        finished, pending = concurrent.futures.wait(
          pending, return_when=concurrent.futures.FIRST_COMPLETED
        )
        done += sum(future.result() for future in finished)
      if progress:
        progress(done, 0)
    done += sum(future.result() for future in pending)
  if progress:
    progress(done, done)
  if not done:
    raise ValueError(f'The corpus holds no document: {corpus.config}.')
  writer.publish(
    num_shards,
    {
      'num_documents': done,
      'vocab_size': tokenizer.vocab_size,
      'pad_id': tokenizer.pad_id,
      'bos_id': tokenizer.bos_id,
      'skipped': dict(sorted(corpus.skipped.items())),
    },
  )
  return TokenStore(path)


class _Inline(concurrent.futures.Executor):
  """Runs tasks at once in this process, behind the pool's interface."""

  def __init__(self, setup):
    _start_worker(*setup)

  def submit(self, fn, /, *args, **kwargs):
    future = concurrent.futures.Future()
    future.set_result(fn(*args, **kwargs))
    return future


def _pool(setup, num_processes: int) -> concurrent.futures.Executor:
  return concurrent.futures.ProcessPoolExecutor(
    num_processes,
    mp_context=multiprocessing.get_context('spawn'),
    initializer=_start_pool_worker,
    initargs=setup,
  )


class TokenStore:
  """Documents as token rows, memory-mapped.

  Attributes:
    store: the store beneath.
    num_documents: how many documents it holds.
    vocab_size: of the tokenizer that made it.
    tokenizer_fingerprint: of the tokenizer that made it.
  """

  def __init__(self, path: str | os.PathLike):
    self.store = store.Store.open(path, KIND)
    self.path = self.store.path
    self.vocab_size = self.store.meta['vocab_size']
    self.tokenizer_fingerprint = self.store.fields['tokenizer']
    self._token_end = self.store.array('token_end')
    self.num_documents = len(self._token_end)
    self.tokens = self.store.array('tokens')
    self.num_bytes = self.store.array('num_bytes')
    self.num_words = self.store.array('num_words')
    self.id_hash = self.store.array('id_hash')
    self._text = {
      name: (self.store.array(f'{name}_end'), self.store.array(f'{name}_text'))
      for name in ('id', 'title')
    }

  def check_tokenizer(self, tokenizer: tokenizers.Tokenizer) -> None:
    """Raises ValueError unless `tokenizer` made this store."""
    if tokenizer.fingerprint != self.tokenizer_fingerprint:
      raise ValueError(
        f'{self.path}: tokenized with {self.tokenizer_fingerprint}, but the '
        f'tokenizer given is {tokenizer.fingerprint}.'
      )

  def _span(self, end: sharded_array.ShardedArray, i: int) -> tuple[int, slice]:
    [shard], [row] = (x.tolist() for x in end.locate(np.asarray([i])))
    ends = end.shard(shard)
    return shard, slice(int(ends[row - 1]) if row else 0, int(ends[row]))

  def document(self, i: int) -> np.ndarray:
    """Tokens of document `i`, BOS first: [length] uint16 or uint32."""
    shard, span = self._span(self._token_end, i)
    return self.tokens.shard(shard)[span]

  def document_id(self, i: int) -> str:
    """The id of document `i`."""
    return self._string('id', i)

  def title(self, i: int) -> str:
    """The title of document `i`."""
    return self._string('title', i)

  def _string(self, name: str, i: int) -> str:
    end, text = self._text[name]
    shard, span = self._span(end, i)
    return bytes(text.shard(shard)[span]).decode()
