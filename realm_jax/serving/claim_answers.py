# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Classify claims with a trained model, in batches on all local devices."""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
from typing import Any

import numpy as np
import scipy.special

from realm_jax.data import examples
from realm_jax.objectives import claims as claims_model
from realm_jax.serving import beams, block_reader, claim_rows, model_configs
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


class Classifier:
  """Retrieves, reads and classifies."""

  def __init__(
    self,
    trained: Any,
    retriever: beams.BlockRetriever,
    *,
    rule: str = 'best',
    retriever_beam: int = 0,
    reader_beam: int = 0,
    batch_size: int = 1,
  ):
    """Place the parameters; compile at the first claim.

    Args:
      rule: 'best' pair of block and class, or 'marginal', summed over blocks.
      retriever_beam: blocks to retrieve; 0: as in training.
      reader_beam: blocks to read; 0: as in training.
      batch_size: claims at a time, filled up to a multiple of the devices.

    Raises:
      ValueError: for an unknown rule.
    """
    if rule not in claims_model.RULES:
      raise ValueError(f'rule {rule!r}: expected one of {claims_model.RULES}.')
    self.trained = trained
    self._layout = model_configs.reader_layout(trained.config, trained.data)
    selector = claim_rows.make_evidence_selector(
      trained.config,
      trained.data,
      retriever,
      retriever_beam=retriever_beam,
      reader_beam=reader_beam,
    )

    def scores(params, batch):
      found = claims_model.class_scores(trained.model, params, batch)
      return found, claims_model.predict(found, rule)

    self._read = block_reader.BlockReader(
      trained.params, selector, scores, batch_size
    )

  def __call__(
    self,
    claims: Sequence[claims_lib.Claim],
    progress: Callable[[int, int], None] | None = None,
  ) -> Iterator[Classified]:
    """Yield claims with their classes, in order; read no label."""
    source = claim_rows.ClaimSource(
      claims, self.trained.data.tokenizer, self._layout
    )
    for index, batch, found, row in self._read(source, progress):
      yield _classified(claims[index], batch, found, row)


def _classified(
  claim: claims_lib.Claim, batch: examples.Batch, found: Any, i: int
) -> Classified:
  scores, predicted = found[0][i].astype(np.float64), int(found[1][i])
  rank = int(scores[:, predicted].argmax())
  none = np.zeros(batch['beam_ids'].shape[1], bool)
  return Classified(
    claim,
    predicted,
    scipy.special.softmax(scores).sum(axis=0),
    int(batch['beam_ids'][i, rank]),
    batch['beam_has_answer'][i] if 'beam_has_answer' in batch else none,
    rank,
  )
