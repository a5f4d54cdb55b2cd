# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Classify claims with a trained model, in batches on all local devices."""

import dataclasses
from typing import Any

import numpy as np
import scipy.special

from realm_jax.data import examples, question_rows
from realm_jax.objectives import claims as claims_model
from realm_jax.serving import beams, block_reader, trained_model
from retrieval.questions import claims as claims_lib


@dataclasses.dataclass(frozen=True)
class Classified:
  """A claim and its predicted class."""

  claim: claims_lib.Claim
  predicted: int  # index of its class
  # [N] of the classes, summed over the blocks that were read
  probabilities: np.ndarray
  block: int  # id of the block with the best score of this class; -1 for none
  # [C] bool; blocks of the beam that belong to named documents
  evidence: np.ndarray
  rank: int  # of that block in the beam, from 0


class Classifier(block_reader.BlockReader):
  """Retrieves, reads and classifies; yields each claim as `Classified`.

  No label is read.
  """

  SOURCE = question_rows.ClaimSource

  def __init__(
    self,
    trained: trained_model.TrainedModel,
    retriever: beams.BeamRetriever,
    *,
    rule: str = 'best',
    **batches: int,
  ):
    """Place the parameters; compile at the first claim.

    Args:
      rule: 'best' pair of block and class, or 'marginal', summed over blocks.
      **batches: retriever_beam, reader_beam, batch_size of `BlockReader`.

    Raises:
      ValueError: for an unknown rule.
    """
    if rule not in claims_model.RULES:
      raise ValueError(f'rule {rule!r}: expected one of {claims_model.RULES}.')

    def scores(params, batch):
      found = claims_model.class_scores(trained.model, params, batch)
      return found, claims_model.predict(found, rule)

    super().__init__(trained, retriever, scores, search=True, **batches)

  def _result(
    self, asked: claims_lib.Claim, batch: examples.Batch, found: Any, row: int
  ) -> Classified:
    scores, predicted = found[0][row].astype(np.float64), int(found[1][row])
    rank = int(scores[:, predicted].argmax())
    none = np.zeros_like(batch['beam_valid'])
    return Classified(
      asked,
      predicted,
      scipy.special.softmax(scores).sum(axis=0),
      int(batch['beam_ids'][row, rank]),
      batch.get('beam_has_answer', none)[row],
      rank,
    )
