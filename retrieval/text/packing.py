# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Pack the sentences of documents into blocks (Lee et al. 2019, section 3)."""

from collections.abc import Iterable, Sequence
import itertools
import re

import numpy as np

from retrieval import tokenization
from retrieval.text import (
  corpus as corpus_lib,
  sentences as sentences_lib,
  taggers,
  tokens as tokens_lib,
)

SPECIALS = 3  # [CLS] title [SEP] block [SEP]


def pack(lengths: Sequence[int], budget: int) -> list[tuple[int, int]]:
  """Pack sentences of so many tokens greedily into blocks of `budget` tokens.

  A longer sentence is a block of its own.
  """
  blocks, first, used = [], 0, 0
  for i, length in enumerate(lengths):
    if i > first and used + length > budget:
      blocks.append((first, i))
      first, used = i, 0
    used += length
  return [*blocks, (first, len(lengths))] if lengths else []


def shard_arrays(
  tokens: tokens_lib.TokenStore,
  documents: Iterable[int],
  tokenizer: tokenization.Tokenizer,
  fields: dict,
  given: taggers.AnnotatedTagger | None = None,
) -> tuple[dict[str, np.ndarray], int]:
  """Pack documents into the arrays of one shard of a block store.

  `fields` are max_length, drop_titles, whole_documents and language of the
  store; `given` finds the sentences of annotated documents.

  Returns:
    The arrays, and the number of documents dropped by their title.
  """
  documents = list(documents)
  titles = [tokens.title(i) for i in documents]
  dropped = re.compile('|'.join(fields['drop_titles']) or r'(?!)')
  kept = [
    (i, title)
    for i, title in zip(documents, titles, strict=True)
    if not dropped.match(title)
  ]
  encoded = [e.ids for e in tokenizer.encode_batch([t for _, t in kept])]
  rows = _Rows(fields, given)
  for (document, title), title_ids in zip(kept, encoded, strict=True):
    rows.add(tokens, document, title, title_ids)
  dtype = tokens.tokens.dtype
  return rows.arrays(dtype), len(documents) - len(kept)


class _Rows:
  """Collects the rows of one shard."""

  def __init__(self, fields: dict, given: taggers.AnnotatedTagger | None):
    self._fields, self._given = fields, given
    self._blocks: list[tuple] = []
    self._sentences: list[np.ndarray] = []
    self._titles: list[np.ndarray] = []
    self._num_title_tokens = 0

  def _split(self, tokens, document: int, text: str) -> list[tuple[int, int]]:
    found = []
    if self._given is not None:
      of = corpus_lib.Document(tokens.document_id(document), '', text)
      found = [span[:2] for span in self._given.tag([of])[0]]
      for (_, limit), (start, _) in itertools.pairwise(found):
        if start < limit:
          raise ValueError(
            f'Sentences of document {of.id!r} overlap: one ends at character '
            f'{limit}, the next starts at {start}.'
          )
    return found or sentences_lib.split(text, self._fields['language'])

  def add(self, tokens, document: int, title: str, title_ids) -> None:
    """Cut one document."""
    fields = self._fields
    raw = tokens.text_bytes(document)
    text = raw.decode()
    found = self._split(tokens, document, text)
    byte_spans = tokenization.byte_offsets(text, found)
    # A token, of which the BOS is the first, belongs to the sentence in which
    # it begins; sentences without tokens are skipped.
    starts = tokens.token_bytes(document)[1:, 0]
    spans = 1 + np.searchsorted(starts, byte_spans)
    kept = spans[:, 1] > spans[:, 0]
    spans, byte_spans = spans[kept], byte_spans[kept]
    limit = fields['max_length'] - SPECIALS
    title_ids = title_ids[: limit // 2]
    title_end = self._num_title_tokens + len(title_ids)
    lengths = np.diff(np.append(spans[:, 0], spans[-1:, 1])).tolist()
    packed = pack(lengths, limit - len(title_ids))
    if fields['whole_documents'] and lengths:
      packed = [(0, len(lengths))]
    for first, last in packed:
      start, end = int(byte_spans[first, 0]), int(byte_spans[last - 1, 1])
      known_by = title.encode() + b'\0' + raw[start:end]
      row = np.full((last - first, 1), len(self._blocks))
      self._sentences.append(
        np.concatenate([row, spans[first:last], byte_spans[first:last]], axis=1)
      )
      tokens_of = (spans[first, 0], spans[last - 1, 1])
      title_of = (self._num_title_tokens, title_end)
      number = tokens_lib.hash_bytes(known_by)
      self._blocks.append((document, *tokens_of, start, end, *title_of, number))
    if packed:
      self._titles.append(title_ids)
      self._num_title_tokens = title_end

  def arrays(self, token_dtype) -> dict[str, np.ndarray]:
    """All rows as the arrays of the shard."""
    columns = list(zip(*self._blocks, strict=True)) or [()] * 8
    none = np.zeros((0, 5), np.int64)
    sentences = np.concatenate([none, *self._sentences])
    counts = np.bincount(
      sentences[:, 0].astype(np.int64), minlength=len(self._blocks)
    )
    return {
      'document': np.asarray(columns[0], np.int64),
      'token_span': np.asarray(columns[1:3], np.int32).T,
      'byte_span': np.asarray(columns[3:5], np.int32).T,
      'title_span': np.asarray(columns[5:7], np.int64).T,
      'hash': np.asarray(columns[7], np.uint64),
      'sentence_end': np.cumsum(counts, dtype=np.int64),
      'sentence_row': sentences[:, 0].astype(np.int64),
      'sentence_tokens': sentences[:, 1:3].astype(np.int32),
      'sentence_bytes': sentences[:, 3:5].astype(np.int32),
      'title_tokens': np.concatenate(
        [np.zeros(0, token_dtype), *self._titles]
      ).astype(token_dtype),
    }
