# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Dense passage retrieval: find the block that answers a question.

Karpukhin et al. 2020, section 3. Each question learns to find its block among
those of all questions of the batch and its hard negatives.

Dimension key: B questions, P = 1 + N blocks of each, its positive first and
then N hard negatives; Q query length, T block length, K = B P candidates.
"""

from collections.abc import Mapping, Sequence
import dataclasses
from typing import Any

from flax import linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Int
import numpy as np

from realm_jax.data import block_dataset, examples
from realm_jax.objectives import in_batch
from retrieval.nn import means, objectives
from retrieval.questions import question_files
from retrieval.text import passages as passages_lib, tokens


def loss(
  model: nn.Module,
  params: Any,
  batch: Mapping[str, jax.Array],
  key: jax.Array,
  train: bool,
  **settings: Any,
) -> tuple[means.Mean, dict[str, means.Mean]]:
  """Cross-entropy of each question's block among all blocks of the batch.

  Karpukhin et al. 2020, eq. 2 and section 3.2; arguments and errors are those of
  `in_batch.score_batch`.

  Returns:
    The mean over valid rows in nats, and metrics: accuracy, the share of rows
    whose positive is ranked first among all candidates; accuracy_hard, ranked
    above the row's hard negatives; mean_rank of the positive, 1 for the first.
  """
  scores, masks = in_batch.score_batch(
    model, params, batch, key, train, **settings
  )
  return objectives.contrastive(scores, masks), metrics(scores, masks)


def metrics(
  scores: jax.Array, masks: objectives.Masks
) -> dict[str, means.Mean]:
  """Return the metrics of `loss`; scores are [B, K]."""
  size, width = scores.shape
  positive = jnp.diagonal(scores)[:, None]
  # Among equal scores the positive ranks last, so that equal vectors do not
  # count as a success.
  above = masks.candidates & (scores >= positive)
  above &= ~jnp.eye(size, width, dtype=bool)
  row = jnp.concatenate(
    [jnp.arange(size), jnp.arange(width - size) // max(width // size - 1, 1)]
  )
  of_row = (row[None] == jnp.arange(size)[:, None]) & above
  valid = masks.positives.any(axis=-1)
  return {
    'accuracy': means.of(~above.any(axis=-1), valid),
    'accuracy_hard': means.of(~of_row.any(axis=-1), valid),
    'mean_rank': means.of(1.0 + above.sum(axis=-1), valid),
  }


@dataclasses.dataclass(frozen=True, eq=False)
class Examples:
  """Questions, each with a passage that answers it."""

  questions: Sequence[question_files.Question]
  positives: np.ndarray  # [n] int64 number of the passage with an answer
  # [n, N] int64 numbers of passages without an answer, best first; -1 for a
  # missing one
  negatives: np.ndarray
  passages: passages_lib.Passages
  fingerprint: str

  def texts(self, numbers: Int[np.ndarray, ' B']) -> list[str]:
    """Return questions."""
    return [self.questions[i].question for i in numbers.tolist()]

  def blocks(
    self, numbers: Int[np.ndarray, ' B']
  ) -> tuple[Int[np.ndarray, 'B P'], examples.Batch]:
    """Return the passages of questions, their block_valid and block_hash."""
    parts = self.positives[numbers, None], self.negatives[numbers]
    ids = np.concatenate(parts, axis=1)
    valid, flat = ids >= 0, np.maximum(ids, 0).reshape(-1)
    hashes = self.passages.hashes(flat).reshape(ids.shape)
    hashes = np.where(valid, hashes, np.uint64(0))
    return ids, {
      'block_valid': valid,
      'block_hash': examples.hash_pairs(hashes),
    }

  def split(self, name: str, valid_fraction: float) -> block_dataset.Split:
    """Split ('train', 'valid' or 'all') by the hashes of the questions' ids.

    Raises:
      ValueError: for another name, and for a split without an example.
    """
    hashes = [tokens.hash_id(question.id) for question in self.questions]
    chosen = tokens.in_split(
      np.asarray(hashes, np.uint64), name, valid_fraction
    )
    return block_dataset.Split(
      chosen,
      f'Split {name!r} with valid_fraction {valid_fraction} of {len(hashes)} '
      f'questions with a passage that answers them ({self.fingerprint})',
    )


def read_rows(
  layout: examples.Layout,
  pairs: Examples,
  encode: examples.Encode,
  numbers: Int[np.ndarray, ' B'],
) -> examples.Batch:
  """Make a batch of `loss`, with queries of at most Q tokens.

  Returns:
    query_ids [B, Q] int32, query_mask [B, Q] bool, block_ids, block_types [B,
    P, T] int32, block_mask [B, P, T] bool, block_valid [B, P] bool and
    block_hash [B, P, 2] uint32.
  """
  texts = pairs.texts(numbers)
  queries = examples.encode_rows(encode, texts, layout.query_tokens)
  ids, fields = pairs.blocks(numbers)
  rows = examples.titled_blocks(layout, pairs.passages, ids.reshape(-1))
  return fields | {
    **examples.queries(layout, *queries),
    **examples.name_rows('block', rows, ids.shape),
  }
