# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Completes questions by the blocks they retrieve: all that the losses read.

Lee et al. 2019 (ORQA), sections 3 and 4. The host does it right before a step, with
the newest parameters: the trained query embedder decides which blocks are read.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from realm_jax.data import examples
from realm_jax.data import question_rows
from realm_jax.data import reader_rows
from realm_jax.serving import beams
from retrieval import tokenization
from retrieval.questions import answer_search
from retrieval.text import blocks as blocks_lib


class BlockLookup:
  """Finds blocks and builds the rows that are read.

  Attributes:
    retriever_beam: C, at most the number of blocks.
    reader_beam: R, at most C.
  """

  def __init__(
    self,
    layout: reader_rows.ReaderLayout,
    blocks: blocks_lib.BlockStore,
    retriever: beams.Retriever,
    *,
    retriever_beam: int = 5000,
    reader_beam: int = 5,
    block_layout: examples.Layout | None = None,
  ):
    """Nothing is read yet.

    Args:
      layout: of the reader's rows.
      blocks: what is retrieved.
      retriever: finds them.
      retriever_beam: C; fewer where there are fewer blocks.
      reader_beam: R.
      block_layout: of the block embedder's rows, if it is trained; else None.

    Raises:
      ValueError: for beams that do not fit each other.
    """
    if not 1 <= reader_beam <= retriever_beam:
      raise ValueError(
        f'reader_beam={reader_beam} and retriever_beam={retriever_beam}: '
        'expected 1 <= reader_beam <= retriever_beam.'
      )
    self.retriever_beam = min(retriever_beam, blocks.num_blocks)
    self.reader_beam = min(reader_beam, self.retriever_beam)
    self._layout, self._blocks = layout, blocks
    self._block_layout = block_layout
    self._retriever = retriever

  def __call__(
    self,
    params: Any,
    batch: Mapping[str, np.ndarray],
    source: question_rows.QuestionSource,
  ) -> examples.Batch:
    """Completes a batch.

    Args:
      params: of the model as it is now.
      batch: question_index [B] int32, question_ids, question_mask [B, Q] and
        row_valid [B], of `question_rows.make_dataset`.
      source: what the indices point into.

    Returns:
      The batch with what `open_qa.BeamScorer` scores, reader_ids, reader_mask,
      reader_types [B, R, L] and reader_valid [B, R], beam_ids [B, C] int32, -1
      for none, reader_starts [B, R] int32.
    """
    found, _ = self._complete(params, batch, source)
    return found

  def _complete(
    self,
    params: Any,
    batch: Mapping[str, np.ndarray],
    source: question_rows.QuestionSource,
  ) -> tuple[examples.Batch, np.ndarray]:
    """What `__call__` returns, and [B] which question each row is."""
    indices = np.where(
      batch['row_valid'], batch['question_index'], question_rows.NONE
    )
    texts = [
      source.questions[i].question if i >= 0 else '' for i in indices.tolist()
    ]
    beam = self._retriever(params, batch, texts, self.retriever_beam)
    ids = np.where(batch['row_valid'][:, None], beam.ids, -1)
    read = ids[:, : self.reader_beam]
    rows = reader_rows.reader_rows(
      self._layout, self._blocks, read, source.tokens(indices)
    )
    found = dict(batch) | beam.fields | rows
    found |= {'beam_ids': ids.astype(np.int32), 'beam_valid': ids >= 0}
    if self._block_layout is not None:
      found |= self._block_rows(read)
    return found, indices

  def _block_rows(self, ids: np.ndarray) -> examples.Batch:
    """Rows of the read blocks for the block embedder: [B, R, T]."""
    rows = examples.titled_blocks(
      self._block_layout, self._blocks, ids.reshape(-1)
    )
    names = ('block_ids', 'block_mask', 'block_types')
    return {
      name: row.reshape(*ids.shape, -1)
      for name, row in zip(names, rows, strict=True)
    }


class Lookup(BlockLookup):
  """Also looks for answers in the blocks, and for gold spans in the rows."""

  def __init__(
    self,
    layout: reader_rows.ReaderLayout,
    blocks: blocks_lib.BlockStore,
    retriever: beams.Retriever,
    *,
    tokenizer: tokenization.WordPieceTokenizer,
    rule: str = 'substring',
    **settings,
  ):
    """Nothing is read yet.

    Args:
      layout: see `BlockLookup`.
      blocks: likewise.
      retriever: likewise.
      tokenizer: of the blocks.
      rule: by which a block holds an answer; see `retrieval.questions.answers`. '' leaves
        beam_has_answer out, which only the loss reads.
      **settings: see `BlockLookup`.
    """
    super().__init__(layout, blocks, retriever, **settings)
    self._search = None
    if rule:
      self._search = answer_search.QuestionSearch(blocks, rule, tokenizer)

  def __call__(
    self,
    params: Any,
    batch: Mapping[str, np.ndarray],
    source: question_rows.QuestionSource,
  ) -> examples.Batch:
    """Completes a batch; arguments as of `BlockLookup`.

    Returns:
      The batch that `reader_losses.loss` reads, and beam_ids and reader_starts.
    """
    found, indices = self._complete(params, batch, source)
    ids = found['beam_ids'].astype(np.int64)
    read = ids[:, : self.reader_beam]
    gold = source.gold_spans(indices, self._blocks, read, found)
    found |= {'reader_correct': gold}
    if self._search is not None:
      found['beam_has_answer'] = self._search.find(
        ids, [source.questions[i] if i >= 0 else None for i in indices.tolist()]
      )
    return found
