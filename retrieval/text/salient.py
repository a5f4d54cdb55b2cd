# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Salient spans of a block store, for REALM's masking.

Guu et al. 2020, section 3.4. A tagger sees whole documents. A span counts if
it lies in one sentence of one block and consists of whole wordpieces; the other
spans are counted by their fault. Spans are ordered by sentence, then by place.
"""

from collections.abc import Callable, Sequence
import os

from jaxtyping import Int
import numpy as np

from retrieval import tokenization
from retrieval.store import array_store, executors, shards as shards_lib
from retrieval.text import blocks as blocks_lib, corpus as corpus_lib, taggers

KIND = 'salient'
# Outcomes of the spans that a tagger finds.
OUTCOMES = (
  'kept',
  'repeated',
  'outside every block',
  'crosses a sentence',
  'cuts a wordpiece',
  'covers no token',
)
_KEPT, _REPEATED, _OUTSIDE, _CROSSES, _CUTS, _EMPTY = range(len(OUTCOMES))
_VERSION = 1  # of the rules that reject spans
_BATCH = 256  # documents tagged at once
_COLUMNS = ('token_start', 'token_limit', 'byte_start', 'byte_limit')


def map_spans(
  spans: Int[np.ndarray, 'n 2'],
  token_bytes: Int[np.ndarray, 'length 2'],
  sentence_bytes: Int[np.ndarray, 's 2'],
) -> tuple[
  Int[np.ndarray, ' n'], Int[np.ndarray, 'n 2'], Int[np.ndarray, ' n']
]:
  """Find the sentence and the tokens of spans of one document.

  Args:
    spans: first and past-last byte of each span.
    token_bytes: bytes of each token of the document, the BOS first.
    sentence_bytes: bytes of each sentence, in order and without overlap.

  Returns:
    The sentence in which each span begins, -1 outside all sentences; its first
    and past-last token; its first fault, an index into OUTCOMES, 0 for none.
  """
  start, limit = spans[:, 0], spans[:, 1]
  after = np.searchsorted(sentence_bytes[:, 0], start, 'right')
  end = np.append(-1, sentence_bytes[:, 1])[after]
  starts, limits = token_bytes[1:, 0], token_bytes[1:, 1]
  first = np.searchsorted(starts, start)
  last = np.searchsorted(limits, limit, 'right')
  # A token lies across the span's first or last byte.
  cuts = np.append(-1, limits)[first] > start
  cuts |= np.append(starts, np.iinfo(np.int64).max)[last] < limit
  outcome = np.select(
    [start >= end, limit > end, cuts, last <= first],
    [_OUTSIDE, _CROSSES, _CUTS, _EMPTY],
    _KEPT,
  )
  sentence = np.where(start < end, after - 1, -1)
  return sentence, 1 + np.stack([first, last], axis=1), outcome


def _document_rows(
  text: str,
  spans: Sequence[taggers.Span],
  labels: Sequence[str],
  token_bytes: np.ndarray,
  sentence_bytes: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
  """Rows (sentence, *_COLUMNS, label) of a document; count of each outcome."""
  places = tokenization.byte_offsets(text, [span[:2] for span in spans])
  sentence, tokens, outcome = map_spans(places, token_bytes, sentence_bytes)
  label = np.asarray([labels.index(span.label) for span in spans], np.int64)
  order = np.flatnonzero(outcome == _KEPT)
  order = order[np.lexsort([tokens[order, 1], tokens[order, 0]])]
  again = (np.diff(tokens[order], axis=0, prepend=-1) == 0).all(axis=1)
  outcome[order[again]] = _REPEATED
  order = order[~again]
  first, limit = tokens[order].T
  places = (token_bytes[first, 0], token_bytes[limit - 1, 1])
  columns = (sentence[order], first, limit, *places, label[order])
  counts = np.bincount(outcome, minlength=len(OUTCOMES))
  return np.stack(columns, axis=1), counts


def _shard_arrays(
  blocks: blocks_lib.BlockStore,
  shard: int,
  documents: np.ndarray,
  tagger: taggers.Tagger,
) -> dict[str, np.ndarray]:
  """Tag documents of one shard of blocks."""
  ends = np.cumsum([0, *blocks.store.rows('sentence_row')])
  ids = np.arange(ends[shard], ends[shard + 1])
  sentence_bytes = blocks.sentence_bytes[ids]
  owner = blocks.documents(blocks.sentence_blocks(ids))
  tokens = blocks.tokens
  rows = [np.zeros((0, 6), np.int64)]
  counts = np.zeros(len(OUTCOMES), np.int64)
  for at in range(0, len(documents), _BATCH):
    chosen = documents[at : at + _BATCH].tolist()
    batch = [
      corpus_lib.Document(
        tokens.document_id(i), tokens.title(i), tokens.text(i)
      )
      for i in chosen
    ]
    for i, document, spans in zip(
      chosen, batch, tagger.tag(batch), strict=True
    ):
      low, high = np.searchsorted(owner, [i, i + 1])
      places = tokens.token_bytes(i), sentence_bytes[low:high]
      table_rows, became = _document_rows(
        document.text, spans, tagger.labels, *places
      )
      table_rows[:, 0] += ids[0] + low
      rows.append(table_rows)
      counts += became
  table = np.concatenate(rows)
  columns = dict(zip(_COLUMNS, table[:, 1:5].T.astype(np.int32), strict=True))
  return columns | {
    'sentence': table[:, 0],
    'label': table[:, 5].astype(np.uint8),
    # Arrays of the shard, so that the counts outlive a kill.
    'outcomes': counts[None],
    'num_documents': np.asarray([len(documents)], np.int64),
  }


def build_salient_store(
  path: str | os.PathLike,
  blocks: blocks_lib.BlockStore,
  tagger: taggers.TaggerConfig | taggers.Tagger,
  *,
  executor: executors.Executor | None = None,
  progress: Callable[[int, int], None] | None = None,
) -> 'SalientStore':
  """Tag the documents of a block store; resume where a call was killed.

  Each process makes a tagger of a `TaggerConfig`. ValueError without any span.
  """
  made = executors.Lazy(taggers.make_tagger, tagger)
  fields = {
    'blocks': blocks.fingerprint,
    'tagger': made.fingerprint,
    'max_blocks': 0,  # all
    'version': _VERSION,
  }
  ends = np.cumsum(blocks.tokens.store.rows('token_end'))
  chosen = np.unique(blocks.documents(np.arange(blocks.num_blocks)))
  parts = np.split(chosen, np.searchsorted(chosen, ends[:-1]))
  shards_lib.build_store(
    path,
    KIND,
    fields,
    [len(part) for part in parts],
    lambda shard, _: _shard_arrays(blocks, shard, parts[shard], made),
    executor=executor,
    progress=progress,
    meta={'blocks': blocks.path.name, 'labels': list(made.labels)},
    needs_rows=(
      'sentence',
      f'no salient span in {len(chosen)} documents for {tagger}.',
    ),
  )
  return SalientStore(path, blocks)


class SalientStore:
  """Salient spans, memory-mapped; rows in the order of sentence and place.

  Attributes:
    sentence: [num_spans] int64 sentence id of each.
    token_start: [num_spans] int32 first token in the document's row.
    token_limit: [num_spans] int32 past-last token.
    byte_start: [num_spans] int32 first byte in the document's text.
    byte_limit: [num_spans] int32 past-last byte.
    label: [num_spans] uint8 index into `labels`.
  """

  def __init__(
    self, path: str | os.PathLike, blocks: blocks_lib.BlockStore | None = None
  ):
    """Open the store, and its block store if `blocks` is None."""
    self.store = array_store.Store.open(path, KIND)
    self.path, self.fingerprint = self.store.path, self.store.fingerprint
    self.blocks = self.store.source('blocks', blocks, blocks_lib.BlockStore)
    self.labels = tuple(self.store.meta['labels'])
    array = self.store.array
    self.sentence = array('sentence')
    self.num_spans = len(self.sentence)
    self.token_start, self.token_limit, self.byte_start, self.byte_limit = (
      array(name) for name in _COLUMNS
    )
    self.label = array('label')

  def counts(self) -> dict[str, int]:
    """Count documents, spans by outcome, and stored spans by label."""
    outcomes = self.store.array('outcomes')[:].sum(axis=0).tolist()
    labels = np.zeros(len(self.labels), np.int64)
    for shard in range(self.store.num_shards):
      labels_of_shard = self.label.shard(shard)
      labels += np.bincount(labels_of_shard, minlength=len(self.labels))
    return {
      'documents': int(self.store.array('num_documents')[:].sum()),
      **dict(zip(OUTCOMES, outcomes, strict=True)),
      **dict(zip(self.labels, labels.tolist(), strict=True)),
    }
