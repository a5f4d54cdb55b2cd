# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""DPR: an embedder trained on questions and blocks that answer them.

Karpukhin et al. 2020, sections 3.2 and 4.1: of the blocks that BM25 ranks highest for a
question, the first with an answer is its positive, the first without are its hard
negatives. The examples become a store under DATA/dpr, shard by shard, so a killed
search continues. REALM and question answering start from the embedder by
--config.embedder_from=DIR.

Dimension key: n questions of a shard, C blocks looked through, N hard negatives.
"""

from collections.abc import Sequence
import dataclasses
import os
import pathlib

from absl import logging
from jaxtyping import Bool, Int, Int64
import numpy as np

from experiments.engine import loop, progress, tasks
from experiments.open_qa import config as config_lib
from experiments.realm import task as realm_task
from realm_jax.data import block_dataset, folder as realm_data
from realm_jax.objectives import dpr
from retrieval.index import text_index
from retrieval.questions import answer_search, question_files, question_sets
from retrieval.search import retriever as retriever_lib
from retrieval.searchers import subset as subset_lib
from retrieval.store import manifests, shards
from retrieval.text import blocks as blocks_lib

FOLDER = 'dpr'
KIND = 'dpr_examples'
SHARD = 1024  # questions
_RULE = 'dpr'  # of answers that are strings
Config = config_lib.DprConfig


def train(config: Config, workdir: str) -> None:
  """Train until `config.num_steps`."""
  data = realm_data.DataFolder.of(config, workdir)
  task = make_task(config, data)
  logging.info('Training on %s, writing to %s.', data.root, workdir)
  loop.train(task, config, workdir)


def make_splits(
  config: Config, data: realm_data.DataFolder
) -> dict[str, tuple[dpr.Examples, block_dataset.Split]]:
  """Find the examples of 'train' and 'valid', and which of them are the split's.

  Without config.questions.dev, config.valid_fraction of the training examples are
  held out.
  """
  realm_task.check_whole_batch(config, 'dpr')

  def find(name):
    return mine(
      data.path(FOLDER),
      question_sets.of_field(config.questions, name),
      data.blocks,
      text_index.TextIndices(data.root, data.blocks).words('bm25'),
      depth=config.dpr.depth,
      num_hard_negatives=config.dpr.num_hard_negatives,
    )

  train = find('train')
  if config.questions.dev:
    examples = {'train': train, 'valid': find('dev')}
    return {name: (x, x.split('all', 0.0)) for name, x in examples.items()}
  names = ['train'] + ['valid'] * bool(config.eval_batches)
  fraction = config.valid_fraction
  return {name: (train, train.split(name, fraction)) for name in names}


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


def make_task(config: Config, data: realm_data.DataFolder) -> tasks.Task:
  """Return the task of the embedder."""
  layout = dataclasses.replace(
    data.layout(config), query_length=config.question_length
  )
  encode = data.tokenizer.encode_ids_batch
  splits = make_splits(config, data)
  examples, rows = splits['train']
  blocks = 1 + examples.negatives.shape[1]

  def read(split):
    of_split = splits[split][0]
    return lambda numbers, _: dpr.read_rows(layout, of_split, encode, numbers)

  prints = [x.fingerprint for x, _ in splits.values()]
  return realm_task.part_task(
    config,
    data,
    part='embedder',
    loss=realm_task.in_batch_loss(dpr.loss, config.dpr),
    dataset=realm_task.row_dataset(
      config, {name: x for name, (_, x) in splits.items()}, read
    ),
    fingerprint=manifests.fingerprint([*prints, repr(rows), str(layout)]),
    row_tokens=layout.query_length + blocks * layout.block_length,
  )
