# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Questions with blocks that answer them, and blocks that do not.

Karpukhin et al. 2020, sections 3.2 and 4.1: of the blocks that BM25 ranks
highest for a question, the first with an answer is its positive, the first
without are its hard negatives. The examples become a store, shard by shard, so
a killed search continues.

Dimension key: n questions of a shard, C blocks looked through, N hard negatives.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
import os
import pathlib
from typing import Any

from absl import logging
from jaxtyping import Bool, Int, Int64
import numpy as np

from experiments.engine import progress
from experiments.open_qa import config as config_lib
from experiments.realm import task as realm_task
from realm_jax.data import block_dataset, folder as realm_data
from realm_jax.objectives import dpr
from realm_jax.trained import loading
from retrieval.index import snapshots, text_index
from retrieval.questions import (
  answer_search,
  question_files,
)
from retrieval.search import queries as queries_lib, retriever as retriever_lib
from retrieval.searchers import subset as subset_lib
from retrieval.store import array_store, manifests, shards
from retrieval.text import blocks as blocks_lib

KIND = 'dpr_examples'
SHARD = 1024  # questions


def first_where(
  ids: Int[np.ndarray, 'n C'], chosen: Bool[np.ndarray, 'n C'], count: int
) -> Int64[np.ndarray, 'n N']:
  """Return the first `count` chosen ids of each row; -1 where there are fewer."""
  columns = subset_lib.first(chosen & (ids >= 0), count)
  return subset_lib.take(ids, columns, -1).astype(np.int64)


def mine(
  folder: str | os.PathLike,
  questions: Sequence[question_files.Question],
  data: realm_data.DataFolder,
  config: config_lib.MineConfig,
  retriever: retriever_lib.Retriever,
) -> dpr.Examples:
  """Find the examples of questions, or open the stored ones.

  Args:
    folder: folder of such stores, each under its fingerprint.
    retriever: ranks the blocks.

  Returns:
    The examples; questions without a positive are left out.

  Raises:
    ValueError: when no question has a positive.
  """
  fields = {
    'blocks': data.blocks.fingerprint,
    'questions': manifests.fingerprint(
      [dataclasses.astuple(q) for q in questions]
    ),
    'retriever': retriever.fingerprint,
    **dataclasses.asdict(config),
  }
  parts = [questions[i : i + SHARD] for i in range(0, len(questions), SHARD)]
  search = answer_search.QuestionSearch(data.blocks, config.rule)

  def find(shard, unused_progress):
    texts = [question.question for question in parts[shard]]
    ids, _ = retriever.search(texts, config.depth)
    right = search.find(ids, parts[shard])
    return {
      'positive': first_where(ids, right, 1)[:, 0],
      'negatives': first_where(ids, ~right, config.num_hard_negatives),
    }

  path = pathlib.Path(folder) / manifests.fingerprint(fields)[:16]
  with progress.bar('find blocks with answers', 'questions') as update:
    stored = shards.build_store(
      path, KIND, fields, [*map(len, parts)], find, progress=update
    )
  return _examples(stored, questions, data.blocks)


def _examples(
  stored: array_store.Store,
  questions: Sequence[question_files.Question],
  blocks: blocks_lib.BlockStore,
) -> dpr.Examples:
  positives, negatives = (
    np.asarray(stored.array(name)[:]) for name in ('positive', 'negatives')
  )
  (answered,) = np.nonzero(positives >= 0)
  logging.info(
    '%s: of %d questions %d are left out, none of their first %d blocks holds an '
    'answer; %d of the others have fewer than %d hard negatives.',
    stored.path,
    len(questions),
    len(questions) - len(answered),
    stored.fields['depth'],
    (negatives[answered] < 0).any(axis=1).sum(),
    negatives.shape[1],
  )
  if not len(answered):
    raise ValueError(
      f'{stored.path}: none of {len(questions)} questions has an answer in its '
      f'first {stored.fields["depth"]} blocks by the rule '
      f'{stored.fields["rule"]!r}; expected questions about these blocks.'
    )
  return dpr.Examples(
    [questions[i] for i in answered.tolist()],
    positives[answered],
    negatives[answered],
    blocks,
    stored.fingerprint,
  )


class Interleaved:
  """A retriever of the first of each list of a run, then the second, ..."""

  unit = 'score'

  def __init__(self, reader: loading.TrainedReader, kinds: Sequence[str]):
    """Take the run, and kinds of retrieval: dense, bm25 or tfidf."""
    self._reader, self._kinds = reader, kinds
    self.fingerprint = manifests.fingerprint(
      [list(kinds), snapshots.fingerprint(reader.params)]
    )

  @functools.cached_property
  def _searches(self) -> list[Callable[[Sequence[str], int], np.ndarray]]:
    data = self._reader.data
    indices = text_index.TextIndices(data.root, data.blocks)

    def search(kind):
      if kind == 'dense':
        return self._reader.as_realm().retrieve
      index = indices.words(kind)
      return lambda texts, k: index.search(texts, k)[0]

    return [search(kind) for kind in self._kinds]

  def search(self, texts: Sequence[str], depth: int) -> queries_lib.Hits:
    """See `retriever.Retriever`; all lists together are `depth` long, unscored."""
    k = min(depth // len(self._kinds), self._reader.data.blocks.num_blocks)
    lists = [search(texts, k) for search in self._searches]
    ids = without_repeats(np.stack(lists, axis=2).reshape(len(texts), -1))
    return ids, np.where(ids < 0, -np.inf, 0).astype(np.float32)


def without_repeats(ids: np.ndarray) -> np.ndarray:
  """Return ids [b, n] with -1 where an id stands before in the same row."""
  result = np.full_like(ids, -1)
  for row, row_ids in zip(result, ids, strict=True):
    _, first = np.unique(row_ids, return_index=True)
    row[first] = row_ids[first]
  return result


@dataclasses.dataclass(frozen=True)
class Splits:
  """Training and held-out examples."""

  # split, 'train' or 'valid' -> examples, and which of them are the split's
  examples: Mapping[str, Any]
  rows: Mapping[str, block_dataset.Split]

  @property
  def identity(self) -> list[str]:
    """Fingerprints of the examples of both splits."""
    prints = [prints.fingerprint for prints in self.examples.values()]
    return [*prints, repr(self.rows['train'])]

  def dataset(
    self, config: Any, read: Callable[[Any], block_dataset.Read]
  ) -> Callable:
    """Return split -> dataset of the rows that read(examples) makes."""
    return realm_task.row_dataset(
      config, self.rows, lambda split: read(self.examples[split])
    )


def make_splits(
  config: Any, find: Callable[[str], Any], has_dev: bool = True
) -> Splits:
  """Find the examples of both splits.

  Without config.questions.dev, or `has_dev`, config.valid_fraction of the training
  examples are held out.

  Args:
    find: 'train' or 'dev' -> examples, which have `split(name, fraction)`.
  """
  train = find('train')
  if config.questions.dev and has_dev:
    examples = {'train': train, 'valid': find('dev')}
    rows = {name: x.split('all', 0.0) for name, x in examples.items()}
    return Splits(examples, rows)
  names = ['train'] + ['valid'] * bool(config.eval_batches)
  return Splits(
    dict.fromkeys(names, train),
    {name: train.split(name, config.valid_fraction) for name in names},
  )
