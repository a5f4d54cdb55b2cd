# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Blocks of whole sentences: spans of their documents, never copies.

Lee et al. 2019 (ORQA), section 3; Guu et al. 2020 (REALM), section 4.2: sentences
are packed one after another while [CLS] title [SEP] block [SEP] keeps within 288
wordpieces. Every block and every sentence knows its tokens in the token store and
its bytes in the document's text. Block ids and sentence ids run through the
documents in order.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import os

from jaxtyping import Int
import numpy as np

from retrieval import tokenization
from retrieval.store import sharded_array
from retrieval.store import store
from retrieval.store import workers
from retrieval.text import packing
from retrieval.text import sentences as sentences_lib
from retrieval.text import taggers
from retrieval.text import tokens as tokens_lib

KIND = 'blocks'
# Titles of pages that hold lists and pointers, not prose.
DROPPED_TITLES = (
  'Lists? of',
  'Index of',
  'Outline of',
  r'.*\(disambiguation\)',
)


_WORKER = {}


def _start_worker(path, fields, tokens_path, tokenizer_path, given) -> None:
  _WORKER['writer'] = store.StoreWriter(path, KIND, fields)
  _WORKER['fields'] = fields
  _WORKER['given'] = given
  _WORKER['tokens'] = tokens_lib.TokenStore(tokens_path)
  _WORKER['tokenizer'] = tokenization.load_tokenizer(tokenizer_path)


def _write_shard(index: int, first: int, limit: int) -> int:
  arrays, dropped = packing.shard_arrays(
    _WORKER['tokens'],
    range(first, limit),
    _WORKER['tokenizer'],
    _WORKER['fields'],
    _WORKER['given'],
  )
  # A store wants one number of dropped documents that outlives a kill.
  arrays['dropped'] = np.asarray([dropped], np.int64)
  _WORKER['writer'].write(index, arrays)
  return limit - first


def build_block_store(
  path: str | os.PathLike,
  tokens: tokens_lib.TokenStore,
  tokenizer_path: str | os.PathLike,
  *,
  max_length: int = 288,
  drop_titles: Sequence[str] = DROPPED_TITLES,
  whole_documents: bool = False,
  language: str = 'en',
  given: taggers.AnnotatedTagger | None = None,
  num_processes: int = 1,
  progress: Callable[[int, int], None] | None = None,
) -> 'BlockStore':
  """Packs the documents of a token store into blocks.

  Args:
    path: where the block store will stand.
    tokens: the documents, with their texts and without titles in them.
    tokenizer_path: of the tokenizer that made `tokens`; it encodes the titles.
    max_length: wordpieces of [CLS] title [SEP] block [SEP]. A longer sentence
      stands alone and is cut where it is read.
    drop_titles: regular expressions; documents whose title begins so are left
      out.
    whole_documents: every document is one block, for corpora of blocks.
    language: of the sentences, ISO code.
    given: the sentences of documents that bring them along; others are split.
    num_processes: that share the work.
    progress: called with (documents done, documents in all).

  Returns:
    The published store.

  Raises:
    ValueError: for another tokenizer, a store without texts, or when no block
      is left.
  """
  tokens.check_tokenizer(tokenization.load_tokenizer(tokenizer_path))
  if not tokens.with_text or tokens.store.fields['with_title']:
    raise ValueError(
      f'{tokens.path}: blocks need a token store made with with_text=True and '
      'with_title=False.'
    )
  if max_length <= 2 * packing.SPECIALS:
    raise ValueError(f'max_length {max_length}: expected more than 6.')
  fields = {
    'tokens': tokens.store.fingerprint,
    'max_length': max_length,
    'drop_titles': list(drop_titles),
    'whole_documents': whole_documents,
    'language': language,
    'sentences': sentences_lib.VERSION if given is None else given.fingerprint,
  }
  writer = store.StoreWriter(path, KIND, fields)
  if writer.published:
    return BlockStore(path, tokens)
  counts = tokens.store.rows('token_end')
  ends = np.cumsum(counts).tolist()
  missing = writer.missing(len(counts))
  done = tokens.num_documents - sum(counts[i] for i in missing)
  calls = ((i, ends[i] - counts[i], ends[i]) for i in missing)
  setup = (path, fields, tokens.path, tokenizer_path, given)
  with workers.start(num_processes, _start_worker, setup) as pool:
    for count in workers.run(pool, _write_shard, calls, 2 * num_processes):
      done += count
      if progress:
        progress(done, tokens.num_documents)
  if not _any_block(writer, len(counts)):
    raise ValueError(
      f'{path}: no block: {tokens.num_documents} documents hold no sentence, or '
      f'their titles are among drop_titles={list(drop_titles)}.'
    )
  writer.publish(len(counts), {'tokens': tokens.path.name})
  return BlockStore(path, tokens)


def _any_block(writer: store.StoreWriter, num_shards: int) -> bool:
  return any(writer.rows(i, 'document') for i in range(num_shards))


class BlockStore:
  """Blocks of a token store, memory-mapped.

  Attributes:
    store: the store beneath.
    tokens: the token store whose spans the blocks are.
    num_blocks: how many there are.
    num_sentences: in all blocks.
    max_length: wordpieces of a block with its title and three specials.
  """

  def __init__(
    self, path: str | os.PathLike, tokens: tokens_lib.TokenStore | None = None
  ):
    self.store = store.Store.open(path, KIND)
    self.path = self.store.path
    self.tokens = tokens_lib.TokenStore.of(self.store, tokens)
    self.max_length = self.store.fields['max_length']
    array = self.store.array
    self._document = array('document')
    self._token_span = array('token_span')
    self._byte_span = array('byte_span')
    self._title_span = array('title_span')
    self._title_tokens = array('title_tokens')
    self._hash = array('hash')
    self._sentence_end = array('sentence_end')
    self._sentence_row = array('sentence_row')
    self._sentence_tokens = array('sentence_tokens')
    self._sentence_bytes = array('sentence_bytes')
    self.num_blocks = len(self._document)
    self.num_sentences = len(self._sentence_row)
    # Where each shard's documents begin, in documents.
    counts = self.tokens.store.rows('token_end')
    self._first_document = np.cumsum([0, *counts])

  @property
  def fingerprint(self) -> str:
    """Hash of what determines every byte of the blocks."""
    return self.store.fingerprint

  @property
  def num_dropped(self) -> int:
    """Documents left out because of their titles."""
    return int(self.store.array('dropped')[:].sum())

  def documents(self, ids: np.ndarray) -> np.ndarray:
    """Document index of each block: [...] int64."""
    return np.asarray(self._document[np.asarray(ids)])

  def token_spans(self, ids: np.ndarray) -> np.ndarray:
    """First and past-last token in the document's row: [..., 2] int32."""
    return np.asarray(self._token_span[np.asarray(ids)])

  def byte_spans(self, ids: np.ndarray) -> np.ndarray:
    """First and past-last byte in the document's text: [..., 2] int32."""
    return self._byte_span[np.asarray(ids)]

  def hashes(self, ids: np.ndarray) -> np.ndarray:
    """Hash of title and text, equal for equal blocks: [...] uint64."""
    return np.asarray(self._hash[np.asarray(ids)])

  def all_hashes(self) -> np.ndarray:
    """`hashes` of every block: [num_blocks] uint64."""
    return self._hash[:]

  def sentence_blocks(self, ids: np.ndarray) -> np.ndarray:
    """Block of each sentence: [...] int64."""
    ids = np.asarray(ids)
    shards, _ = self._sentence_row.locate(ids)
    return self._sentence_row[ids] + self._document.offsets[shards]

  def sentence_tokens(self, ids: np.ndarray) -> np.ndarray:
    """First and past-last token in the document's row: [..., 2] int32."""
    return self._sentence_tokens[np.asarray(ids)]

  def sentence_bytes(self, ids: np.ndarray) -> np.ndarray:
    """First and past-last byte in the document's text: [..., 2] int32."""
    return self._sentence_bytes[np.asarray(ids)]

  def sentences(self, block: int) -> range:
    """Ids of the sentences of one block."""
    [shard], [row] = (
      x.tolist() for x in self._document.locate(np.asarray([block]))
    )
    ends = self._sentence_end.shard(shard)
    base = int(self._sentence_row.offsets[shard])
    return range(
      base + int(ends[row - 1]) if row else base, base + int(ends[row])
    )

  def gather(
    self, ids: Int[np.ndarray, '*batch'], length: int
  ) -> tuple[Int[np.ndarray, '*batch length'], Int[np.ndarray, '*batch']]:
    """Reads the tokens of blocks, without their titles.

    Args:
      ids: [...] block ids; -1 for none.
      length: most tokens of a block.

    Returns:
      [..., length] int32 tokens, 0 past the block's end, and [...] int32 how
      many there are.
    """
    ids = np.asarray(ids, np.int64)
    spans = self._token_span[np.maximum(ids, 0)]
    return self._read(ids, self.documents(np.maximum(ids, 0)), spans, length)

  def gather_sentences(
    self, ids: Int[np.ndarray, '*batch'], length: int
  ) -> tuple[Int[np.ndarray, '*batch length'], Int[np.ndarray, '*batch']]:
    """Reads the tokens of sentences; as `gather`."""
    ids = np.asarray(ids, np.int64)
    kept = np.maximum(ids, 0)
    documents = self.documents(self.sentence_blocks(kept))
    return self._read(ids, documents, self._sentence_tokens[kept], length)

  def _read(self, ids, documents, spans, length):
    """Reads token spans of documents: flat positions, shard by shard."""
    flat, documents = ids.reshape(-1), documents.reshape(-1)
    spans = spans.reshape(-1, 2)
    shards = np.searchsorted(self._first_document, documents, 'right') - 1
    tokens = np.zeros((len(flat), length), np.int32)
    lengths = np.zeros(len(flat), np.int32)
    for shard in np.unique(shards[flat >= 0]).tolist():
      here = np.flatnonzero((shards == shard) & (flat >= 0))
      ends = self.tokens.store.shard(shard, 'token_end')
      local = documents[here] - self._first_document[shard]
      base = np.where(local, ends[np.maximum(local, 1) - 1], 0)
      counts = np.minimum(spans[here, 1] - spans[here, 0], length)
      tokens[here], _ = sharded_array.take_spans(
        self.tokens.tokens.shard(shard), base + spans[here, 0], counts, length
      )
      lengths[here] = counts
    return tokens.reshape(*ids.shape, length), lengths.reshape(ids.shape)

  def gather_titles(
    self, ids: Int[np.ndarray, '*batch'], length: int
  ) -> tuple[Int[np.ndarray, '*batch length'], Int[np.ndarray, '*batch']]:
    """Reads the tokens of the blocks' titles; as `gather`."""
    ids = np.asarray(ids, np.int64)
    flat = ids.reshape(-1)
    tokens = np.zeros((len(flat), length), np.int32)
    lengths = np.zeros(len(flat), np.int32)
    shards, rows = self._title_span.locate(np.maximum(flat, 0))
    for shard in np.unique(shards[flat >= 0]).tolist():
      here = np.flatnonzero((shards == shard) & (flat >= 0))
      spans = self._title_span.shard(shard)[rows[here]]
      counts = np.minimum(spans[:, 1] - spans[:, 0], length)
      tokens[here], _ = sharded_array.take_spans(
        self._title_tokens.shard(shard), spans[:, 0], counts, length
      )
      lengths[here] = counts
    return tokens.reshape(*ids.shape, length), lengths.reshape(ids.shape)

  def texts(self, ids: Iterable[int | np.integer]) -> list[str]:
    """The exact text of each block; '' for -1."""
    return [self._text(int(i)) if i >= 0 else '' for i in ids]

  def _text(self, i: int) -> str:
    start, limit = self._byte_span[i].tolist()
    return self.tokens.text_bytes(int(self._document[i]))[start:limit].decode()

  def titles(self, ids: Iterable[int | np.integer]) -> list[str]:
    """The title of each block's document; '' for -1."""
    return [
      self.tokens.title(int(self._document[int(i)])) if i >= 0 else ''
      for i in ids
    ]

  def names(self, ids: Iterable[int | np.integer]) -> list[str]:
    """What each block is called outside; '' for -1.

    'ID:START-LIMIT', its document's id and its bytes in the document's text.
    Numbers of blocks shift when documents come and go; these do not.
    """
    return [self._name(int(i)) if i >= 0 else '' for i in ids]

  def _name(self, i: int) -> str:
    start, limit = self._byte_span[i].tolist()
    document = self.tokens.document_id(int(self._document[i]))
    return f'{document}:{start}-{limit}'
