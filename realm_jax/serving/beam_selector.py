# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Select the blocks that the reader reads with the newest query embedder.

Lee et al. 2019 (ORQA), sections 3 and 4.
"""

from collections.abc import Mapping
from typing import Any

import ml_collections
import numpy as np

from realm_jax.data import (
  examples,
  folder as data_folder,
  question_rows,
  reader_rows,
)
from realm_jax.serving import beams, model_configs
from retrieval.questions import answer_search
from retrieval.text import blocks as blocks_lib


class BeamSelector:
  """Retrieves C blocks (retriever_beam); builds rows of the best R."""

  def __init__(
    self,
    layout: reader_rows.ReaderLayout,
    blocks: blocks_lib.BlockStore,
    retriever: beams.BlockRetriever,
    *,
    retriever_beam: int = 5000,
    reader_beam: int = 5,
    block_layout: examples.Layout | None = None,
  ):
    """Check the beams; at most the number of blocks is retrieved.

    block_layout: lengths of the block embedder's rows, if it is trained.

    Raises:
      ValueError: unless 1 <= R <= C.
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

  def select(
    self,
    params: Any,
    batch: Mapping[str, np.ndarray],
    source: question_rows.QuestionSource,
  ) -> examples.Batch:
    """Complete a batch of `question_rows.make_dataset` by its blocks.

    Returns:
      The batch with the inputs of `open_qa.BeamScorer`: reader_ids,
      reader_mask, reader_types [B, R, L] and reader_valid [B, R], beam_ids [B,
      C] int32, -1 for none, reader_starts [B, R] int32.
    """
    found, _ = self._select(params, batch, source)
    return found

  def _select(
    self,
    params: Any,
    batch: Mapping[str, np.ndarray],
    source: question_rows.QuestionSource,
  ) -> tuple[examples.Batch, np.ndarray]:
    """Return the completed batch, and the number [B] of each row's question."""
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


class AnswerSelector(BeamSelector):
  """Also finds answers in the blocks, and gold spans in the rows."""

  def __init__(
    self, *arguments, search: answer_search.QuestionSearch | None, **settings
  ):
    """Take `BeamSelector`'s arguments; search = None omits beam_has_answer."""
    super().__init__(*arguments, **settings)
    self._search = search

  def select(
    self,
    params: Any,
    batch: Mapping[str, np.ndarray],
    source: question_rows.QuestionSource,
  ) -> examples.Batch:
    """Complete a batch by its blocks, with reader_correct and beam_has_answer."""
    found, indices = self._select(params, batch, source)
    ids = found['beam_ids'].astype(np.int64)
    read = ids[:, : self.reader_beam]
    gold = source.gold_spans(indices, self._blocks, read, found)
    found |= {'reader_correct': gold}
    if self._search is not None:
      found['beam_has_answer'] = self._search.find(
        ids, [source.questions[i] if i >= 0 else None for i in indices.tolist()]
      )
    return found


def beam_settings(
  config: ml_collections.ConfigDict,
  data: data_folder.DataFolder,
  retriever_beam: int = 0,
  reader_beam: int = 0,
  train_blocks: bool = False,
) -> dict[str, Any]:
  """Return the keyword arguments of a selector; beams of 0 are the config's."""
  return {
    'retriever_beam': retriever_beam or config.lookup.retriever_beam,
    'reader_beam': reader_beam or config.lookup.reader_beam,
    'block_layout': data.layout(config) if train_blocks else None,
  }


def make_answer_selector(
  config: ml_collections.ConfigDict,
  data: data_folder.DataFolder,
  retriever: beams.BlockRetriever,
  *,
  search: bool = True,
  **beam: Any,
) -> AnswerSelector:
  """Return the selector of a reader of spans.

  `search`: whether to look for answers in the blocks; `beam`: arguments of
  `beam_settings`.
  """
  blocks, rule = data.blocks, config.lookup.rule
  return AnswerSelector(
    model_configs.reader_layout(config, data),
    blocks,
    retriever,
    search=answer_search.QuestionSearch(blocks, rule, data.tokenizer)
    if search
    else None,
    **beam_settings(config, data, **beam),
  )
