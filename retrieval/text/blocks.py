# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Blocks of whole sentences, as spans of their documents.

Lee et al. 2019 (ORQA), section 3; Guu et al. 2020 (REALM), section 4.2: a block
takes sentences while [CLS] title [SEP] block [SEP] keeps within 288 wordpieces.
Blocks and sentences are stored as spans of tokens in the token store and of
bytes in the document's text. Ids run through the documents in order.
"""

from collections.abc import Callable, Iterable, Sequence
import os

from absl import logging
from jaxtyping import Int
import numpy as np

from retrieval import arguments, tokenization
from retrieval.store import executors, sharded_array, shards
from retrieval.text import (
  corpus as corpus_lib,
  passages,
  taggers,
  tokens as tokens_lib,
)

KIND = 'blocks'
Ids = Int[np.ndarray, '*batch']
# tokens, 0 past the end of each row, and their number
Rows = tuple[Int[np.ndarray, '*batch length'], Int[np.ndarray, '*batch']]
# Titles of Wikipedia's pages that hold lists and pointers, not prose.
DROPPED_TITLES = (
  'Lists? of',
  'Index of',
  'Outline of',
  r'.*\(disambiguation\)',
)


def titles_to_drop(
  patterns: Sequence[str], corpus: corpus_lib.CorpusConfig
) -> tuple[str, ...]:
  """Return the patterns for a corpus; Wikipedia's only for its pages."""
  patterns = tuple(arguments.listed(patterns, 'patterns'))
  of_others = patterns == DROPPED_TITLES and not corpus.of_wikipedia
  return () if of_others else patterns


def build_block_store(
  path: str | os.PathLike,
  tokens: tokens_lib.TokenStore,
  tokenizer_path: str | os.PathLike,
  *,
  max_length: int = 288,
  drop_titles: Sequence[str] = (),
  whole_documents: bool = False,
  language: str = 'en',
  annotations: taggers.AnnotatedTagger | None = None,
  num_processes: int = 1,
  executor: executors.Executor | None = None,
  progress: Callable[[int, int], None] | None = None,
) -> 'BlockStore':
  """Pack the documents of a token store into blocks.

  Args:
    tokens: store with texts and without titles in them.
    tokenizer_path: tokenizer of `tokens`; it encodes the titles.
    max_length: wordpieces of [CLS] title [SEP] block [SEP], more than 6. A longer
      sentence is a whole block and is cut where it is read.
    drop_titles: regular expressions; documents whose title begins with a match
      are left out, and a log line tells their number.
    whole_documents: make every document one block, for corpora of blocks.
    annotations: sentences of documents that have annotations; others are split.
    num_processes: processes of this machine that share the work.
    executor: where the shards are made instead.
    progress: called with (documents done, documents in all).

  Raises:
    ValueError: for another tokenizer, a store without texts, or no block.
  """
  from retrieval.text import packing  # which readers of blocks do not need

  tokenizer = tokenization.load_tokenizer(tokenizer_path)
  tokens.check_tokenizer(tokenizer)
  if not tokens.with_text or tokens.store.fields['with_title']:
    raise ValueError(
      f'{tokens.path}: blocks need a token store made with with_text=True and '
      'with_title=False.'
    )
  fields = {
    'tokens': tokens.store.fingerprint,
    'max_length': max_length,
    'drop_titles': list(drop_titles),
    'whole_documents': whole_documents,
    'language': language,
    'sentences': packing.SENTENCES_VERSION
    if annotations is None
    else annotations.fingerprint,
  }
  shards.build_store(
    path,
    KIND,
    fields,
    tokens.store.rows('token_end'),
    lambda shard, _: packing.shard_arrays(
      tokens, shard, tokenizer, fields, annotations
    ),
    executor=executor or executors.local(num_processes),
    progress=progress,
    meta={'tokens': tokens.path.name},
    needs_rows=(
      'document',
      f'no block: {tokens.num_documents} documents hold no sentence, or '
      f'drop_titles={list(drop_titles)} match their titles.',
    ),
  )
  built = BlockStore(path, tokens)
  if built.num_dropped:
    logging.info(
      '%d documents left out, whose titles match blocks.drop_titles=%s.',
      built.num_dropped,
      list(drop_titles),
    )
  return built


class BlockStore(passages.Passages):
  """Blocks of a token store, memory-mapped.

  Attributes:
    max_length: wordpieces of a block with its title and three specials.
    token_spans: [num_blocks, 2] first and past-last token in the document's row.
    byte_spans: [num_blocks, 2] first and past-last byte in the document's text.
    sentence_tokens: [num_sentences, 2] the same of sentences, in tokens.
    sentence_bytes: [num_sentences, 2] the same of sentences, in bytes.
  """

  def __init__(
    self, path: passages.Place, tokens: tokens_lib.TokenStore | None = None
  ):
    super().__init__(path, KIND, tokens)
    self.max_length = self.store.fields['max_length']
    array = self.store.array
    self._hash = array('hash')
    self.token_spans = array('token_span')
    self.byte_spans = array('byte_span')
    self._title_span = array('title_span')
    self._title_tokens = array('title_tokens')
    self._sentence_end = array('sentence_end')
    self._sentence_row = array('sentence_row')
    self.sentence_tokens = array('sentence_tokens')
    self.sentence_bytes = array('sentence_bytes')
    self.num_blocks = len(self)
    self.num_sentences = len(self._sentence_row)

  @property
  def num_dropped(self) -> int:
    """Number of documents left out because of their titles."""
    return int(self.store.array('dropped')[:].sum())

  def hashes(self, ids: np.ndarray) -> np.ndarray:
    """Hash of title and text, equal for equal blocks: [...] uint64."""
    return np.asarray(self._hash[np.asarray(ids)])

  def all_hashes(self) -> np.ndarray:
    """Hashes of all blocks: [num_blocks] uint64."""
    return self._hash[:]

  def sentence_blocks(self, ids: np.ndarray) -> np.ndarray:
    """Block of each sentence: [...] int64."""
    ids = np.asarray(ids)
    shards, _ = self._sentence_row.locate(ids)
    return self._sentence_row[ids] + self._document.offsets[shards]

  def sentences(self, block: int) -> range:
    """Ids of the sentences of one block."""
    shard, rows = tokens_lib.span_of(self._sentence_end, block)
    base = int(self._sentence_row.offsets[shard])
    return range(base + rows.start, base + rows.stop)

  def gather(self, ids: Ids, length: int) -> Rows:
    """Read up to `length` tokens of blocks, without their titles.

    Returns:
      [..., length] int32 tokens, 0 past the block's end, and [...] int32 their
      number; none for -1.
    """
    real = np.maximum(ids, 0)
    spans, documents = self.token_spans[real], self.documents(real)
    return self._gather(ids, spans, documents, length)

  def gather_sentences(self, ids: Ids, length: int) -> Rows:
    """Read the tokens of sentences, as `gather` reads blocks."""
    real = np.maximum(ids, 0)
    documents = self.documents(self.sentence_blocks(real))
    return self._gather(ids, self.sentence_tokens[real], documents, length)

  def _gather(self, ids, spans, documents, length: int):
    shards, starts = self.tokens.locate(documents)
    spans = spans + starts[..., None]
    return _gather(self.tokens.tokens, ids, shards, spans, length)

  def gather_titles(self, ids: Ids, length: int) -> Rows:
    """Read the tokens of the blocks' titles, as `gather` reads blocks."""
    real = np.maximum(ids, 0)
    shards, _ = self._title_span.locate(real)
    spans = self._title_span[real]
    return _gather(self._title_tokens, ids, shards, spans, length)

  def texts(self, ids: Iterable[int | np.integer]) -> list[str]:
    """Return the exact text of each block; '' for -1."""
    return [self._text(int(i)) if i >= 0 else '' for i in ids]

  def _text(self, i: int) -> str:
    start, limit = self.byte_spans[i].tolist()
    text = self.tokens.text_bytes(int(self.documents(np.asarray(i))))
    return self.tokens.decode(text[start:limit])

  def search_texts(self, ids: Iterable[int | np.integer]) -> list[str]:
    """Return blocks below their titles."""
    ids = [*ids]
    pairs = zip(self.titles(ids), self.texts(ids), strict=True)
    return [f'{title}\n{text}' for title, text in pairs]

  def token_rows(self, ids: np.ndarray) -> list[np.ndarray]:
    """Return the tokens of each block; none for -1."""
    tokens, counts = self.gather(ids, self.max_length)
    return [row[:n] for row, n in zip(tokens, counts, strict=True)]

  def names(self, ids: Iterable[int | np.integer]) -> list[str]:
    """Return the name 'ID:START-LIMIT' of each block; '' for -1.

    It holds the document's id and the block's bytes in the document's text, and
    stays when the numbers of blocks change.
    """
    return [self._name(int(i)) if i >= 0 else '' for i in ids]

  def _name(self, i: int) -> str:
    start, limit = self.byte_spans[i].tolist()
    document = self.tokens.document_id(int(self.documents(np.asarray(i))))
    return f'{document}:{start}-{limit}'


def _gather(source, ids, shards, spans, length: int):
  """Read spans [..., 2] of shards [...]; a row of id -1 is empty."""
  ids, (starts, ends) = np.asarray(ids), np.moveaxis(spans, -1, 0)
  tokens, valid = sharded_array.gather_spans(
    source, ids, shards, starts, ends - starts, length
  )
  return tokens, valid.sum(axis=-1, dtype=np.int32)
