# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Questions with blocks that answer them, and blocks that do not.

Karpukhin et al. 2020, sections 3.2 and 4.1: of the blocks that BM25 ranks
highest for a question, the first with an answer is its positive, the first
without are its hard negatives. The examples become a store, shard by shard, so
a killed search continues.

Dimension key: n questions of a shard, C blocks looked through, N hard negatives.
"""

from collections.abc import Sequence
import dataclasses
import os
import pathlib

from absl import logging
from jaxtyping import Bool, Int, Int64
import numpy as np

from experiments.engine import progress
from realm_jax.objectives import dpr
from retrieval.questions import answer_search, question_files
from retrieval.search import retriever as retriever_lib
from retrieval.searchers import subset as subset_lib
from retrieval.store import manifests, shards
from retrieval.text import blocks as blocks_lib

KIND = 'dpr_examples'
SHARD = 1024  # questions
_RULE = 'dpr'  # of answers that are strings


def first_where(
  ids: Int[np.ndarray, 'n C'], chosen: Bool[np.ndarray, 'n C'], count: int
) -> Int64[np.ndarray, 'n N']:
  """Return the first `count` chosen ids of each row; -1 where there are fewer."""
  columns = subset_lib.first(chosen & (ids >= 0), count)
  return subset_lib.take(ids, columns, -1).astype(np.int64)


def mine(
  folder: str | os.PathLike,
  questions: Sequence[question_files.Question],
  blocks: blocks_lib.BlockStore,
  retriever: retriever_lib.Retriever,
  *,
  depth: int,
  num_hard_negatives: int,
) -> dpr.Examples:
  """Find the examples of questions, or open the stored ones.

  Args:
    folder: folder of such stores, each under its fingerprint.
    retriever: ranks the blocks.
    depth: blocks of a question to search.
    num_hard_negatives: of each question, the best ones.

  Returns:
    The examples; questions without a positive are left out.

  Raises:
    ValueError: when no question has a positive.
  """
  fields = {
    'blocks': blocks.fingerprint,
    'questions': manifests.fingerprint(
      [dataclasses.astuple(q) for q in questions]
    ),
    'retriever': retriever.fingerprint,
    'rule': _RULE,
    'depth': depth,
    'num_hard_negatives': num_hard_negatives,
  }
  parts = [questions[i : i + SHARD] for i in range(0, len(questions), SHARD)]
  search = answer_search.QuestionSearch(blocks, _RULE)

  def find(shard, unused_progress):
    texts = [question.question for question in parts[shard]]
    ids, _ = retriever.search(texts, depth)
    right = search.find(ids, parts[shard])
    return {
      'positive': first_where(ids, right, 1)[:, 0],
      'negatives': first_where(ids, ~right, num_hard_negatives),
    }

  path = pathlib.Path(folder) / manifests.fingerprint(fields)[:16]
  with progress.bar('find blocks with answers', 'questions') as update:
    stored = shards.build_store(
      path, KIND, fields, [*map(len, parts)], find, progress=update
    )
  positives, negatives = (
    np.asarray(stored.array(name)[:]) for name in ('positive', 'negatives')
  )
  (answered,) = np.nonzero(positives >= 0)
  if not len(answered):
    raise ValueError(
      f'{path}: none of {len(questions)} questions has an answer in its first '
      f'{depth} blocks; expected questions about these blocks.'
    )
  logging.info(
    '%s: %d of %d questions have an answer in their first %d blocks; %d of them '
    'have fewer than %d hard negatives.',
    path,
    len(answered),
    len(questions),
    depth,
    (negatives[answered] < 0).any(axis=1).sum(),
    num_hard_negatives,
  )
  return dpr.Examples(
    [questions[i] for i in answered.tolist()],
    positives[answered],
    negatives[answered],
    blocks,
    stored.fingerprint,
  )
