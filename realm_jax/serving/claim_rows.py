# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Batches of claims, and which of the blocks found for them are evidence.

A claim is retrieved for as a question is, and its rows are those of the reader:
`[CLS] claim [SEP] body [SEP]`. Evidence is a block of a document that the data
set names.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
from typing import Any

from jaxtyping import Bool
from jaxtyping import Int
import numpy as np

from realm_jax.data import examples
from realm_jax.data import question_rows
from realm_jax.data import reader_rows
from realm_jax.serving import lookup
from retrieval import tokenization
from retrieval.questions import claims as claims_lib
from retrieval.questions import questions as questions_lib
from retrieval.store import store
from retrieval.text import blocks as blocks_lib


class ClaimSource(question_rows.QuestionSource):
  """Claims as rows; see `question_rows.QuestionSource`.

  Attributes:
    claims: as given.
    has_evidence: whether any claim names documents.
  """

  def __init__(
    self,
    claims: Sequence[claims_lib.Claim],
    tokenizer: tokenization.Tokenizer,
    layout: reader_rows.ReaderLayout,
  ):
    """Tokenizes the claims.

    Raises:
      ValueError: without a claim.
    """
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
    """See `QuestionSource.rows`; also claim_label [B] int32, 0 for NONE."""
    rows = super().rows(indices, size)
    labels = np.zeros(size, np.int32)
    labels[: len(indices)] = self._labels[indices]
    return rows | {'claim_label': labels}


class EvidenceSearch:
  """Finds the blocks of documents by their titles.

  Remembers a number of each title, not the title: 12 bytes a document.
  """

  def __init__(self, blocks: blocks_lib.BlockStore):
    """Reads the title of every document."""
    self._blocks = blocks
    count = blocks.tokens.num_documents
    hashes = np.fromiter((hash(self._title(i)) for i in range(count)), np.int64)
    self._documents = np.argsort(hashes, kind='stable').astype(np.int32)
    self._hashes = hashes[self._documents]

  def _title(self, document: int) -> str:
    return claims_lib.normalize_title(self._blocks.tokens.title(document))

  def _titled(self, title: str) -> list[int]:
    """The documents with a title; those with but its hash are left out."""
    low, high = (
      np.searchsorted(self._hashes, hash(title), side)
      for side in ('left', 'right')
    )
    found = self._documents[low:high].tolist()
    return [i for i in found if title and self._title(i) == title]

  def find(
    self, ids: Int[np.ndarray, 'b c'], titles: Sequence[Sequence[str]]
  ) -> Bool[np.ndarray, 'b c']:
    """Which blocks are of documents with these titles.

    Args:
      ids: [B, C] blocks, -1 for none.
      titles: [B] of each row, see `claims.normalize_title`.

    Returns:
      [B, C] bool.
    """
    documents = self._blocks.documents(np.maximum(ids, 0))
    found = np.zeros(ids.shape, bool)
    for i, wanted in enumerate(titles):
      gold = [d for title in wanted for d in self._titled(title)]
      found[i] = np.isin(documents[i], gold)
    return found & (ids >= 0)


class ClaimLookup(lookup.BlockLookup):
  """Also says which blocks are evidence, where the claims name any."""

  @functools.cached_property
  def _evidence(self) -> EvidenceSearch:
    """Reads all titles, so only where there is evidence to be found."""
    return EvidenceSearch(self._blocks)

  def __call__(
    self,
    params: Any,
    batch: Mapping[str, np.ndarray],
    source: ClaimSource,
  ) -> examples.Batch:
    """Completes a batch; arguments as of `lookup.BlockLookup`.

    Returns:
      The batch that `claims.loss` reads, and beam_ids and reader_starts;
      beam_has_answer, which blocks are evidence, where `source.has_evidence`.
    """
    found, indices = self._complete(params, batch, source)
    if source.has_evidence:
      titles = [
        source.claims[i].titles if i >= 0 else () for i in indices.tolist()
      ]
      ids = found['beam_ids']
      found['beam_has_answer'] = self._evidence.find(ids, titles)
    return found
