# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Split documents into sentences and pack these into blocks (Lee et al. 2019, 3).

Wikimedia's sentencex finds the sentences.
"""

from collections.abc import Sequence
import itertools
import re

import numpy as np
import sentencex

from retrieval import tokenization
from retrieval.text import corpus as corpus_lib, taggers, tokens as tokens_lib

SENTENCES_VERSION = 1  # of `split_sentences`; part of the fingerprint of blocks
SPECIALS = 3  # [CLS] title [SEP] block [SEP]
_LINE = re.compile(r'\S(?:[^\n]*\S)?')  # without the blanks around it


def split_sentences(text: str, language: str = 'en') -> list[tuple[int, int]]:
  """Return first and past-last character of sentences, in order.

  Line breaks end sentences; the blanks around one are left out.
  """
  return [
    line.span()
    for sentence in sentencex.get_sentence_boundaries(language, text)
    for line in _LINE.finditer(
      text, sentence['start_index'], sentence['end_index']
    )
  ]


def pack(lengths: Sequence[int], budget: int) -> list[tuple[int, int]]:
  """Pack sentences of so many tokens greedily into blocks of `budget` tokens.

  A longer sentence is a whole block.
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
  shard: int,
  tokenizer: tokenization.Tokenizer,
  fields: dict,
  annotations: taggers.AnnotatedTagger | None = None,
) -> dict[str, np.ndarray]:
  """Pack the documents of a shard of tokens into the arrays of a shard of blocks.

  `fields` are max_length, drop_titles, whole_documents and language of the
  store; `annotations` finds the sentences of annotated documents.
  """
  ends = np.cumsum([0, *tokens.store.rows('token_end')]).tolist()
  named = [(i, tokens.title(i)) for i in range(*ends[shard : shard + 2])]
  dropped = re.compile('|'.join(fields['drop_titles']) or r'(?!)')
  retained = [(i, title) for i, title in named if not dropped.match(title)]
  encoded = tokenizer.encode_batch([title for _, title in retained])
  limit = fields['max_length'] - SPECIALS
  dtype, num_title_tokens = tokens.tokens.dtype, 0
  blocks, sentences = [], [np.zeros((0, 5), np.int64)]
  titles = [np.zeros(0, dtype)]
  for (document, title), encoding in zip(retained, encoded, strict=True):
    raw = tokens.text_bytes(document)
    text = raw.decode()
    sentence_spans = _sentences(
      tokens.document_id(document), text, fields, annotations
    )
    byte_spans = tokenization.byte_offsets(text, sentence_spans)
    # A token, of which the BOS is the first, belongs to the sentence in which
    # it begins; sentences without tokens are skipped.
    starts = tokens.token_bytes(document)[1:, 0]
    spans = 1 + np.searchsorted(starts, byte_spans)
    has_tokens = spans[:, 1] > spans[:, 0]
    spans, byte_spans = spans[has_tokens], byte_spans[has_tokens]
    if not len(spans):
      continue
    title_ids = encoding.ids[: limit // 2]
    titles.append(title_ids)
    title_span = num_title_tokens, num_title_tokens + len(title_ids)
    num_title_tokens = title_span[1]
    lengths = np.diff(np.append(spans[:, 0], spans[-1:, 1])).tolist()
    packed = pack(lengths, limit - len(title_ids))
    if fields['whole_documents']:
      packed = [(0, len(lengths))]
    for first, last in packed:
      start, end = int(byte_spans[first, 0]), int(byte_spans[last - 1, 1])
      row = np.full((last - first, 1), len(blocks))
      parts = row, spans[first:last], byte_spans[first:last]
      sentences.append(np.concatenate(parts, axis=1))
      token_span = spans[first, 0], spans[last - 1, 1]
      hashed = tokens_lib.hash_bytes(title.encode() + b'\0' + raw[start:end])
      blocks.append((document, *token_span, start, end, *title_span, hashed))
  columns = list(zip(*blocks, strict=True)) or [()] * 8
  table = np.concatenate(sentences)
  counts = np.bincount(table[:, 0], minlength=len(blocks))
  return {
    'document': np.asarray(columns[0], np.int64),
    'token_span': np.asarray(columns[1:3], np.int32).T,
    'byte_span': np.asarray(columns[3:5], np.int32).T,
    'title_span': np.asarray(columns[5:7], np.int64).T,
    'hash': np.asarray(columns[7], np.uint64),
    'sentence_end': np.cumsum(counts, dtype=np.int64),
    'sentence_row': table[:, 0],
    'sentence_tokens': table[:, 1:3].astype(np.int32),
    'sentence_bytes': table[:, 3:5].astype(np.int32),
    'title_tokens': np.concatenate(titles).astype(dtype),
    # documents left out by their titles; an array, so that it outlives a kill
    'dropped': np.asarray([len(named) - len(retained)], np.int64),
  }


def _sentences(
  name: str,
  text: str,
  fields: dict,
  annotations: taggers.AnnotatedTagger | None,
) -> list[tuple[int, int]]:
  """Sentences of a document, as annotated or as split."""
  sentences = []
  if annotations is not None:
    [spans] = annotations.tag([corpus_lib.Document(name, '', text)])
    sentences = [span[:2] for span in spans]
  for (_, limit), (start, _) in itertools.pairwise(sentences):
    if start < limit:
      raise ValueError(
        f'Sentences of document {name!r} overlap: one ends at character '
        f'{limit}, the next starts at {start}.'
      )
  return sentences or split_sentences(text, fields['language'])
