# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Zero-shot recall: the share of questions with an answer in k blocks.

Guu et al. 2020, table 2: before fine-tuning there is no reader, but an answer in the
text of the first 5 blocks shows that the retriever works. DPR's top-k
accuracy is the same measure by another rule of `retrieval.questions.answers`.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
from typing import Annotated, Literal

from jaxtyping import Int
import numpy as np

from experiments.engine import evaluations, progress
from realm_jax.data import examples, folder as realm_data
from realm_jax.trained import embedders
from retrieval import settings
from retrieval.index import text_index
from retrieval.questions import (
  answer_search,
  bootstrap,
  question_files,
)
from retrieval.search import bm25 as bm25_lib
from retrieval.text import blocks as blocks_lib

_BATCH = 256  # questions in a call of the retriever
Rank = Annotated[int, settings.Range(1, 2**20)]
# [b] questions, k -> [b, k] int64 block ids, best first; -1 is no block.
Retrieve = Callable[[Sequence[str], int], np.ndarray]
# Rule -> [n] rank from 0 of the first block with an answer, infinity for none.
Ranks = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recall:
  """Questions, and how the blocks retrieved for them are judged."""

  questions: tuple[str, ...] = ()  # files; see retrieval/questions/questions.py
  max_questions: settings.Count = 0  # of each file; 0: all
  ks: tuple[Rank, ...] = (1, 5, 20, 100)
  # of answers that are strings; regular expressions are matched as such
  rules: tuple[Literal['substring', 'dpr'], ...] = ('substring', 'dpr')


def dense(
  index: embedders.BlockIndex,
  data: realm_data.DataFolder,
  layout: examples.Layout,
) -> Retrieve:
  """Return a search by a dense index."""
  return lambda texts, k: index.retrieve_texts(texts, k, data.tokenizer, layout)


def words(data: realm_data.DataFolder) -> bm25_lib.Bm25:
  """Return the index of words."""
  return text_index.TextIndices(data.root, data.blocks).words('bm25')


def bm25(data: realm_data.DataFolder) -> Retrieve:
  """Return a search by words."""
  index = words(data)
  return lambda texts, k: index.search(texts, k)[0]


def first_hits(
  retrieve: Retrieve,
  blocks: blocks_lib.BlockStore,
  questions: Sequence[question_files.Question],
  depth: int,
  rules: Sequence[str],
  update: Callable[[int, int], None] | None = None,
) -> Ranks:
  """Rank the first block with an answer, by each rule.

  The rule 'regex' measures questions whose answers are regular expressions; each of
  `rules` measures all other questions. A rule without a question is left out.
  """
  kinds = dict.fromkeys(rules, 'string') | {'regex': 'regex'}
  searches = {
    rule: answer_search.QuestionSearch(
      blocks, rule if kind == 'string' else 'dpr'
    )
    for rule, kind in kinds.items()
    if any(question.kind == kind for question in questions)
  }
  hits_by_rule: dict[str, list[np.ndarray]] = {rule: [] for rule in searches}
  for low in range(0, len(questions), _BATCH):
    batch = questions[low : low + _BATCH]
    ids: Int[np.ndarray, 'b k'] = np.asarray(
      retrieve([question.question for question in batch], depth)
    )
    for rule, search in searches.items():
      rows = [i for i, q in enumerate(batch) if q.kind == kinds[rule]]
      hits = search.find(ids[rows], [batch[i] for i in rows])
      hits_by_rule[rule].append(np.where(hits.any(1), hits.argmax(1), np.inf))
    if update:
      update(low + len(batch), len(questions))
  return {rule: np.concatenate(ranks) for rule, ranks in hits_by_rule.items()}


def measure(
  retrievers: Mapping[str, Retrieve],
  blocks: blocks_lib.BlockStore,
  options: Recall,
) -> list[evaluations.Row]:
  """Measure the recall of retrievers on files of questions.

  Returns:
    Rows whose facts are questions_file, retriever, rule, questions (their number) and
    recall@k: {mean, low, high}, a 95 % interval of a bootstrap over questions; by
    file.
  """
  rows = []
  for file in options.questions:
    questions = question_files.read_questions(file)
    questions = questions[: options.max_questions or None]
    for name, retrieve in retrievers.items():
      with progress.bar(f'{name} {file}', 'questions') as update:
        ranks_by_rule = first_hits(
          retrieve, blocks, questions, max(options.ks), options.rules, update
        )
      for rule, ranks in ranks_by_rule.items():
        values = {
          f'recall@{k}': (ranks < k).astype(np.float64)
          for k in sorted({*options.ks})
        }
        facts = {'questions_file': file, 'retriever': name, 'rule': rule}
        facts |= {'questions': len(ranks)}
        facts |= {k: vars(bootstrap.bootstrap(x)) for k, x in values.items()}
        label = ', '.join((name, file, rule))
        rows.append(evaluations.Row(name=label, values=values, facts=facts))
  return rows
