# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Questions with blocks that answer them, and blocks that do not.

Karpukhin et al. 2020, sections 3.2 and 4.1: of the blocks that BM25 ranks
highest for a question, the first with an answer is its positive, the first
without are its hard negatives. The examples become a store, shard by shard, so
a killed search continues.

Dimension key: n questions of a shard, C blocks looked through, N hard negatives.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import dataclasses
import os
import pathlib
from typing import Annotated, Any

from absl import logging
from jaxtyping import Bool, Int, Int64
import numpy as np

from experiments.engine import progress
from realm_jax.data import block_dataset
from realm_jax.objectives import dpr
from realm_jax.serving import trained_models
from retrieval import settings, tokenization
from retrieval.index import text_indices
from retrieval.questions import (
  answer_search,
  answers as answers_lib,
  dpr_json,
  questions as questions_lib,
)
from retrieval.search import bm25
from retrieval.store import store, store_writer
from retrieval.text import blocks as blocks_lib

KIND = 'dpr_examples'
_SHARD = 1024  # questions

# [b] questions, k -> [b, k] block ids, best first; -1 for none.
Retrieve = Callable[[Sequence[str], int], np.ndarray]


@dataclasses.dataclass(frozen=True, kw_only=True)
class MineConfig:
  """Rules of the search for examples."""

  # for answers that are strings; regular expressions are searched as such
  rule: answers_lib.StringRule = 'dpr'
  # C, blocks of each list to search (paper: 100)
  depth: Annotated[int, settings.Range(1, 2**20)] = 100
  # N (paper: 1)
  num_hard_negatives: Annotated[int, settings.Range(0, 2**12)] = 1

  def __post_init__(self):
    settings.check(self)
    if self.depth <= self.num_hard_negatives:
      raise ValueError(
        f'depth={self.depth}, num_hard_negatives={self.num_hard_negatives}: '
        'expected fewer negatives than blocks.'
      )


def choose(
  ids: Int[np.ndarray, 'n C'],
  has_answer: Bool[np.ndarray, 'n C'],
  num_hard_negatives: int,
) -> tuple[Int64[np.ndarray, ' n'], Int64[np.ndarray, 'n N']]:
  """Choose the first block with an answer, and the first ones without.

  Args:
    ids: [n, C] blocks, best first; -1 for none.
    has_answer: [n, C] whether each holds an answer of its question.

  Returns:
    [n] positives, -1 where no block holds an answer, and [n, N] hard negatives,
    -1 where there are fewer.
  """
  positive = has_answer & (ids >= 0)
  rows = np.arange(len(ids))
  first = ids[rows, positive.argmax(axis=1)]
  positives = np.where(positive.any(axis=1), first, -1).astype(np.int64)
  negatives = np.full((len(ids), num_hard_negatives), -1, np.int64)
  for row, wrong in enumerate(~has_answer & (ids >= 0)):
    found = ids[row, wrong][:num_hard_negatives]
    negatives[row, : len(found)] = found
  return positives, negatives


def mine(
  folder: str | os.PathLike,
  questions: Sequence[questions_lib.Question],
  blocks: blocks_lib.BlockStore,
  tokenizer: tokenization.Tokenizer,
  config: MineConfig,
  retrieve: Callable[[], Retrieve],
  found_by: Mapping[str, Any] | None = None,
) -> dpr.Examples:
  """Find the examples of questions, or open those found before.

  Args:
    folder: folder of such stores, each under its fingerprint.
    tokenizer: tokenizer of the rule 'wordpiece'.
    retrieve: returns the retriever that ranks the blocks; only called where the
      search is not finished.
    found_by: JSON fields that determine the retriever; None for BM25 with its
      defaults.

  Returns:
    The examples; questions without a positive are left out.

  Raises:
    ValueError: when no question has a positive.
  """
  fields = {
    'blocks': blocks.fingerprint,
    'questions': store.fingerprint([dataclasses.astuple(q) for q in questions]),
    **(found_by or {'bm25': dataclasses.asdict(bm25.Bm25Config())}),
    **dataclasses.asdict(config),
  }
  path = pathlib.Path(folder) / store.fingerprint(fields)[:16]
  writer = store_writer.StoreWriter(path, KIND, fields)
  if not writer.published:
    search = answer_search.QuestionSearch(blocks, config.rule, tokenizer)
    _write(writer, questions, config, retrieve(), search)
  found = store.Store.open(path, KIND, fields)
  return _examples(found, questions, blocks)


def _write(
  writer: store_writer.StoreWriter,
  questions: Sequence[questions_lib.Question],
  config: MineConfig,
  retrieve: Retrieve,
  search: answer_search.QuestionSearch,
) -> None:
  num_shards = -(-len(questions) // _SHARD)
  with progress.bar('find blocks with answers', 'questions') as update:
    for shard in writer.missing(num_shards):
      chosen = questions[shard * _SHARD : (shard + 1) * _SHARD]
      ids = np.asarray(retrieve([q.question for q in chosen], config.depth))
      positives, negatives = choose(
        ids, search.find(ids, chosen), config.num_hard_negatives
      )
      arrays = {'positive': positives, 'negatives': negatives}
      writer.write(shard, arrays)
      update(shard * _SHARD + len(chosen), len(questions))
  writer.publish(num_shards)


def _examples(
  found: store.Store,
  questions: Sequence[questions_lib.Question],
  blocks: blocks_lib.BlockStore,
) -> dpr.Examples:
  positives, negatives = (
    np.asarray(found.array(name)[:]) for name in ('positive', 'negatives')
  )
  (kept,) = np.nonzero(positives >= 0)
  logging.info(
    '%s: of %d questions %d are left out, none of their first %d blocks holds an '
    'answer; %d of the others have fewer than %d hard negatives.',
    found.path,
    len(questions),
    len(questions) - len(kept),
    found.fields['depth'],
    (negatives[kept] < 0).any(axis=1).sum(),
    negatives.shape[1],
  )
  if not len(kept):
    raise ValueError(
      f'{found.path}: none of {len(questions)} questions has an answer in its '
      f'first {found.fields["depth"]} blocks by the rule '
      f'{found.fields["rule"]!r}; expected questions about these blocks.'
    )
  return dpr.Examples(
    [questions[i] for i in kept.tolist()],
    positives[kept],
    negatives[kept],
    dpr.BlockPassages(blocks),
    found.fingerprint,
  )


def read_json(
  path: str | os.PathLike,
  tokenizer: tokenization.WordPieceTokenizer,
  num_hard_negatives: int,
) -> dpr.Examples:
  """Read DPR's training file; its passages need not be blocks of a store.

  Takes the first positive and the first hard negatives of each question;
  questions without a positive are left out.

  Raises:
    FileNotFoundError: when there is no such file.
    ValueError: for a broken file, or no question with a positive.
  """
  path = pathlib.Path(path)
  questions, rows, numbers = [], [], {}
  total = 0
  for total, found in enumerate(dpr_json.read_training(path), start=1):
    if not found.positive:
      continue
    used = (found.positive[0], *found.hard_negative[:num_hard_negatives])
    row = [numbers.setdefault((x.title, x.text), len(numbers)) for x in used]
    rows.append(row + [-1] * (1 + num_hard_negatives - len(row)))
    name = f'{path.name}:{total}'
    questions.append(
      questions_lib.Question(name, found.question, found.answers)
    )
  if not rows:
    raise ValueError(f'{path}: none of {total} questions has positive_ctxs.')
  logging.info(
    '%s: %d of %d questions have a positive, %d passages.',
    path,
    len(rows),
    total,
    len(numbers),
  )
  ids = np.asarray(rows, np.int64)
  key = store.fingerprint([store.hash_files([path]), num_hard_negatives])
  passages = dpr.TextPassages(list(numbers), tokenizer, key)
  return dpr.Examples(questions, ids[:, 0], ids[:, 1:], passages, key)


def write_json(path: str | os.PathLike, examples: dpr.Examples) -> int:
  """Write examples as DPR's training file; return how many."""

  def context(number):
    title, text = examples.passages.title_and_text(number)
    name = str(number)
    if isinstance(examples.passages, dpr.BlockPassages):
      [name] = examples.passages.blocks.names([number])
    return dpr_json.Context(id=name, title=title, text=text)

  def rows() -> Iterator[dpr_json.Example]:
    for question, positive, negatives in zip(
      examples.questions,
      examples.positives.tolist(),
      examples.negatives.tolist(),
      strict=True,
    ):
      yield dpr_json.Example(
        question=question.question,
        answers=question.answers,
        positive=(context(positive),),
        hard_negative=tuple(context(i) for i in negatives if i >= 0),
      )

  return dpr_json.write_training(path, rows())


def interleaved(
  reader: trained_models.TrainedReader, kinds: Sequence[str]
) -> Retrieve:
  """Return a retriever of the first of each list, then the second, ..."""

  def search(kind):
    if kind == 'dense':
      return reader.with_retriever(kind).as_realm().retrieve
    data = reader.data
    index = text_indices.TextIndices(data.root, data.blocks).words(kind)
    return lambda texts, k: index.search(texts, k)[0]

  searches = [search(kind) for kind in kinds]

  def retrieve(texts: Sequence[str], depth: int) -> np.ndarray:
    k = min(depth // len(kinds), reader.data.blocks.num_blocks)
    lists = [search(texts, k) for search in searches]
    return without_repeats(np.stack(lists, axis=2).reshape(len(texts), -1))

  return retrieve


def without_repeats(ids: np.ndarray) -> np.ndarray:
  """Return ids [b, n] with -1 where an id stands before in the same row."""
  result = np.full_like(ids, -1)
  for row, found in zip(result, ids, strict=True):
    _, first = np.unique(found, return_index=True)
    row[first] = found[first]
  return result


def make_splits(
  config: Any, find: Callable[[str], Any], has_dev: bool = True
) -> dict[str, tuple[Any, block_dataset.Split]]:
  """Return split -> all examples, and the numbers of the split's.

  Without config.questions.dev, or `has_dev`, config.valid_fraction of the training examples are
  held out.

  Args:
    find: 'train' or 'dev' -> examples, which have `split(name, fraction)`.
  """
  train = find('train')
  if config.questions.dev and has_dev:
    dev = find('dev')
    return {
      'train': (train, train.split('all', 0.0)),
      'valid': (dev, dev.split('all', 0.0)),
    }
  names = ['train'] + ['valid'] * bool(config.eval_batches)
  return {
    name: (train, train.split(name, config.valid_fraction)) for name in names
  }
