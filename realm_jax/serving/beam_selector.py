# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Select the blocks that the reader reads with the newest query embedder.

Lee et al. 2019 (ORQA), sections 3 and 4.
"""

from collections.abc import Mapping, Sequence
import functools
from typing import Any

from jaxtyping import Bool, Int
import ml_collections
import numpy as np

from realm_jax.data import (
  examples,
  folder as data_folder,
  question_rows,
  reader_rows,
)
from realm_jax.serving import beams, model_configs
from retrieval.questions import answer_search, claims as claims_lib
from retrieval.text import blocks as blocks_lib


class EvidenceSearch:
  """Finds the blocks of documents by titles, kept in 12 bytes a document."""

  def __init__(self, blocks: blocks_lib.BlockStore):
    """Take the blocks; the first search reads the title of every document."""
    self._blocks = blocks

  @functools.cached_property
  def _documents(self) -> tuple[np.ndarray, np.ndarray]:
    """Hashes of all titles, sorted, and their documents."""
    count = self._blocks.tokens.num_documents
    hashes = np.fromiter((hash(self._title(i)) for i in range(count)), np.int64)
    documents = np.argsort(hashes, kind='stable').astype(np.int32)
    return hashes[documents], documents

  def _title(self, document: int) -> str:
    return claims_lib.normalize_title(self._blocks.tokens.title(document))

  def _titled(self, title: str) -> list[int]:
    """Return the documents with a title; other titles with its hash are skipped."""
    hashes, documents = self._documents
    low, high = (
      np.searchsorted(hashes, hash(title), side) for side in ('left', 'right')
    )
    found = documents[low:high].tolist()
    return [i for i in found if title and self._title(i) == title]

  def find(
    self,
    ids: Int[np.ndarray, 'b c'],
    claims: Sequence[claims_lib.Claim | None],
  ) -> Bool[np.ndarray, 'b c']:
    """Mark the blocks [B, C] (-1 for none) of documents that claims [B] name."""
    documents = self._blocks.documents(np.maximum(ids, 0))
    found = np.zeros(ids.shape, bool)
    for row, claim in enumerate(claims):
      titles = claim.titles if claim else ()
      gold = [d for title in titles for d in self._titled(title)]
      found[row] = np.isin(documents[row], gold)
    return found & (ids >= 0)


class BeamSelector:
  """Retrieves C blocks (retriever_beam); builds rows of the best R.

  Finds answers in the blocks, and gold spans in the rows.
  """

  def __init__(
    self,
    layout: reader_rows.ReaderLayout,
    blocks: blocks_lib.BlockStore,
    retriever: beams.BlockRetriever,
    *,
    search: answer_search.QuestionSearch | EvidenceSearch | None = None,
    retriever_beam: int = 5000,
    reader_beam: int = 5,
    block_layout: examples.Layout | None = None,
  ):
    """Check the beams; at most the number of blocks is retrieved.

    Args:
      search: marks the blocks that answer a question, or are the evidence of a
        claim; None omits beam_has_answer.
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
    self._retriever, self._search = retriever, search

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
      C] int32, -1 for none, reader_starts [B, R] int32; of questions
      reader_correct; where the source knows the answers, beam_has_answer.
    """
    indices = np.where(
      batch['row_valid'], batch['question_index'], question_rows.NONE
    )
    asked = [source.asked[i] if i >= 0 else None for i in indices.tolist()]
    texts = [
      source.questions[i].question if i >= 0 else '' for i in indices.tolist()
    ]
    beam = self._retriever(params, batch, texts, self.retriever_beam)
    ids = np.where(batch['row_valid'][:, None], beam.ids, -1)
    read = ids[:, : self.reader_beam]
    found = dict(batch) | beam.fields
    found |= reader_rows.reader_rows(
      self._layout, self._blocks, read, source.tokens(indices)
    )
    found |= {'beam_ids': ids.astype(np.int32), 'beam_valid': ids >= 0}
    if self._block_layout is not None:
      rows = examples.titled_blocks(
        self._block_layout, self._blocks, read.reshape(-1)
      )
      found |= examples.name_rows('block', rows, read.shape)
    found |= source.gold_fields(indices, self._blocks, read, found)
    if self._search is not None and source.has_answers:
      found['beam_has_answer'] = self._search.find(ids, asked)
    return found


def make_selector(
  config: ml_collections.ConfigDict,
  data: data_folder.DataFolder,
  retriever: beams.BlockRetriever,
  *,
  search: bool = True,
  retriever_beam: int = 0,
  reader_beam: int = 0,
  train_blocks: bool = False,
) -> BeamSelector:
  """Return the selector of a reader of spans or a classifier of claims.

  Args:
    search: whether to look for answers, or evidence, in the blocks.
    retriever_beam: blocks to retrieve; 0: the config's number.
    reader_beam: blocks to read; 0: the config's number.
    train_blocks: whether batches hold rows of the block embedder.
  """
  blocks, found = data.blocks, None
  if search and config.task == 'claims':
    found = EvidenceSearch(blocks)
  elif search:
    rule = config.lookup.rule
    found = answer_search.QuestionSearch(blocks, rule, data.tokenizer)
  return BeamSelector(
    model_configs.reader_layout(config, data),
    blocks,
    retriever,
    search=found,
    retriever_beam=retriever_beam or config.lookup.retriever_beam,
    reader_beam=reader_beam or config.lookup.reader_beam,
    block_layout=data.layout(config) if train_blocks else None,
  )
