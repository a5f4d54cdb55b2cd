# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Zero-shot recall: the share of questions with an answer in k blocks.

Guu et al. 2020, table 2: before fine-tuning there is no reader, but an answer in the
text of the first 5 blocks shows that the retriever works. DPR's top-k
accuracy is the same measure by another rule of `retrieval.questions.answers`.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from experiments.engine import evaluations, progress
from realm_jax.data import folder as realm_data
from retrieval.index import text_index
from retrieval.questions import answer_search, bootstrap, question_files
from retrieval.search import bm25 as bm25_lib
from retrieval.text import blocks as blocks_lib

_BATCH = 256  # questions in a call of the retriever
# [b] questions, k -> [b, k] int64 block ids, best first; -1 is no block.
Retrieve = Callable[[Sequence[str], int], np.ndarray]
KS = (1, 5, 20, 100)
_RULES = ('substring', 'dpr')  # of answers that are strings


def words(data: realm_data.DataFolder) -> bm25_lib.Bm25:
  """Return the index of words."""
  return text_index.TextIndices(data.root, data.blocks).words('bm25')


def first_hits(
  retrieve: Retrieve,
  blocks: blocks_lib.BlockStore,
  questions: Sequence[question_files.Question],
  update: Callable[[int, int], None],
) -> dict[str, np.ndarray]:
  """Rank the first block with an answer among the first `KS[-1]`.

  Args:
    questions: the questions of one file, all of one kind.

  Returns:
    Rule ('regex' for regular expressions, else each of `_RULES`) -> [n] ranks from 0,
    infinity for none.
  """
  rules = {x: x for x in _RULES}
  if questions[0].kind == 'regex':
    rules = {'regex': 'dpr'}
  searches = {
    name: answer_search.QuestionSearch(blocks, rule)
    for name, rule in rules.items()
  }
  ranks: dict[str, list[np.ndarray]] = {rule: [] for rule in rules}
  for low in range(0, len(questions), _BATCH):
    batch = questions[low : low + _BATCH]
    ids = np.asarray(retrieve([x.question for x in batch], KS[-1]))
    for rule, search in searches.items():
      hits = search.find(ids, batch)
      ranks[rule].append(np.where(hits.any(1), hits.argmax(1), np.inf))
    update(low + len(batch), len(questions))
  return {rule: np.concatenate(parts) for rule, parts in ranks.items()}


def measure(
  retrievers: Mapping[str, Retrieve],
  blocks: blocks_lib.BlockStore,
  files: Sequence[str],
  max_questions: int = 0,
) -> list[evaluations.Row]:
  """Measure the recall of retrievers on files of questions.

  Args:
    max_questions: of each file, the first ones; 0: all.

  Returns:
    Rows whose facts are questions_file, retriever, rule, questions (their number) and
    recall@k: {mean, low, high}, a 95 % interval of a bootstrap over questions; by
    file.
  """
  rows = []
  for file in files:
    questions = question_files.read_questions(file)[: max_questions or None]
    for name, retrieve in retrievers.items():
      with progress.bar(f'{name} {file}', 'questions') as update:
        ranks_by_rule = first_hits(retrieve, blocks, questions, update)
      for rule, ranks in ranks_by_rule.items():
        values = {f'recall@{k}': (ranks < k).astype(np.float64) for k in KS}
        facts = {'questions_file': file, 'retriever': name, 'rule': rule}
        facts |= {'questions': len(ranks)}
        facts |= {k: vars(bootstrap.bootstrap(x)) for k, x in values.items()}
        label = ', '.join((name, file, rule))
        rows.append(evaluations.Row(name=label, values=values, facts=facts))
  return rows
