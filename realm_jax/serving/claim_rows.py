# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows of claims, and the evidence among the blocks retrieved for them.

A claim's rows are the reader's: `[CLS] claim [SEP] body [SEP]`. Evidence is a
block of a document that the data set names.
"""

from collections.abc import Mapping, Sequence
import dataclasses
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
from realm_jax.serving import beam_selector, beams, model_configs
from retrieval import tokenization
from retrieval.questions import claims as claims_lib, questions as questions_lib
from retrieval.store import store
from retrieval.text import blocks as blocks_lib


class ClaimSource(question_rows.QuestionSource):
  """Claims in place of questions, with their labels."""

  def __init__(
    self,
    claims: Sequence[claims_lib.Claim],
    tokenizer: tokenization.Tokenizer,
    layout: reader_rows.ReaderLayout,
  ):
    """Tokenize the claims; ValueError without a claim."""
    if not claims:
      raise ValueError('No claims: expected at least one.')
    self.claims = tuple(claims)
    asked = [questions_lib.Question(c.id, c.claim, ()) for c in claims]
    super().__init__(asked, tokenizer, layout)
    self.has_evidence = any(claim.titles for claim in claims)
    found = [dataclasses.asdict(claim) for claim in claims]
    self.fingerprint = store.fingerprint([self.fingerprint, found])
    self._labels = np.asarray([claim.label for claim in claims], np.int32)

  def rows(self, indices: np.ndarray, size: int) -> examples.Batch:
    """Return rows as of questions, and claim_label [B] int32, 0 for NONE."""
    rows = super().rows(indices, size)
    labels = np.zeros(size, np.int32)
    labels[: len(indices)] = self._labels[indices]
    return rows | {'claim_label': labels}


class EvidenceSearch:
  """Finds the blocks of documents by titles, kept in 12 bytes a document."""

  def __init__(self, blocks: blocks_lib.BlockStore):
    """Read the title of every document."""
    self._blocks = blocks
    count = blocks.tokens.num_documents
    hashes = np.fromiter((hash(self._title(i)) for i in range(count)), np.int64)
    self._documents = np.argsort(hashes, kind='stable').astype(np.int32)
    self._hashes = hashes[self._documents]

  def _title(self, document: int) -> str:
    return claims_lib.normalize_title(self._blocks.tokens.title(document))

  def _titled(self, title: str) -> list[int]:
    """Return the documents with a title; other titles with its hash are skipped."""
    low, high = (
      np.searchsorted(self._hashes, hash(title), side)
      for side in ('left', 'right')
    )
    found = self._documents[low:high].tolist()
    return [i for i in found if title and self._title(i) == title]

  def find(
    self, ids: Int[np.ndarray, 'b c'], titles: Sequence[Sequence[str]]
  ) -> Bool[np.ndarray, 'b c']:
    """Mark the blocks [B, C] (-1 for none) of documents with given titles.

    `titles` [B] are normalised by `claims.normalize_title`.
    """
    documents = self._blocks.documents(np.maximum(ids, 0))
    found = np.zeros(ids.shape, bool)
    for i, wanted in enumerate(titles):
      gold = [d for title in wanted for d in self._titled(title)]
      found[i] = np.isin(documents[i], gold)
    return found & (ids >= 0)


class EvidenceSelector(beam_selector.BeamSelector):
  """Also marks the blocks that are evidence, where the claims name documents."""

  @functools.cached_property
  def _evidence(self) -> EvidenceSearch:
    """Read all titles, so only where a claim names documents."""
    return EvidenceSearch(self._blocks)

  def select(
    self,
    params: Any,
    batch: Mapping[str, np.ndarray],
    source: ClaimSource,
  ) -> examples.Batch:
    """Complete a batch by its blocks; beam_has_answer marks the evidence."""
    found, indices = self._select(params, batch, source)
    if source.has_evidence:
      titles = [
        source.claims[i].titles if i >= 0 else () for i in indices.tolist()
      ]
      ids = found['beam_ids']
      found['beam_has_answer'] = self._evidence.find(ids, titles)
    return found


def make_evidence_selector(
  config: ml_collections.ConfigDict,
  data: data_folder.DataFolder,
  retriever: beams.BlockRetriever,
  **beam: Any,
) -> EvidenceSelector:
  """Return the selector of a classifier of claims."""
  return EvidenceSelector(
    model_configs.reader_layout(config, data),
    data.blocks,
    retriever,
    **beam_selector.beam_settings(config, data, **beam),
  )
