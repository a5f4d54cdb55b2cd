# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Zero-shot recall: the share of questions with an answer in k blocks.

Guu et al. 2020, table 2: before fine-tuning there is no reader, but an answer
in the text of the first 5 blocks shows that the retriever found the right
place. DPR's top-k accuracy is the same measure by another matching rule of
`retrieval.questions.answers`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import dataclasses
from typing import Any

from jaxtyping import Int
import numpy as np

from experiments.engine import progress
from retrieval.questions import (
  answers as answers_lib,
  bootstrap,
  questions as questions_lib,
)
from retrieval.text import blocks as blocks_lib

# [b] questions, k -> [b, k] int64 block ids, best first; -1 is no block.
RetrieveFn = Callable[[Sequence[str], int], np.ndarray]
# [n] int64 block ids -> their texts, without titles.
TextsFn = Callable[[np.ndarray], Sequence[str]]


@dataclasses.dataclass(frozen=True)
class Recall:
  """Recall of a retriever by one matching rule."""

  rule: str  # name of the matching rule
  # [n] int64. Rank from 0 of the first block with an answer; -1 if no block has
  # one.
  first_hits: np.ndarray
  # k -> share of questions with an answer in their first k blocks, with the 95
  # % interval of a bootstrap over questions
  shares: dict[int, bootstrap.Interval]

  def to_json(self) -> dict[str, Any]:
    """Return the row as JSON values, without the ranks of single questions."""
    shares = {
      f'recall@{k}': dataclasses.asdict(x) for k, x in self.shares.items()
    }
    return {
      'rule': self.rule,
      'questions': len(self.first_hits),
      **shares,
    }


def recall_table(
  questions: Sequence[questions_lib.Question],
  retrieve: RetrieveFn,
  texts_of: TextsFn,
  ks: Sequence[int] = (1, 5, 20, 100),
  rules: Sequence[str] = ('substring', 'dpr'),
  *,
  batch_size: int = 256,
  progress: Callable[[int, int], None] | None = None,
) -> list[Recall]:
  """Measure a retriever on questions.

  The rule 'regex' measures questions whose answers are regular expressions;
  each of `rules` measures all other questions.

  Args:
    texts_of: returns the texts that are searched for answers.
    rules: matching rules of answers that are strings.
    batch_size: number of questions in a call of the retriever.

  Raises:
    ValueError: if there is no question or no k, if ids repeat, or if `rules`
      name 'regex'.
  """
  ks = sorted(set(ks))
  if not questions or not ks or ks[0] < 1 or batch_size < 1:
    raise ValueError(
      f'{len(questions)} questions, ks={ks}, batch_size={batch_size}: expected '
      'at least one question, one k and batches, all above 0.'
    )
  if len({question.id for question in questions}) < len(questions):
    raise ValueError('Two questions have the same id.')
  matchers = _matchers(questions, rules)
  first_hits = {name: [] for name in matchers}
  for low in range(0, len(questions), batch_size):
    batch = questions[low : low + batch_size]
    ids = _retrieve(retrieve, batch, ks[-1])
    for question, row in zip(batch, ids, strict=True):
      there = np.flatnonzero(row >= 0)
      texts = texts_of(row[there])
      for name, rule in matchers.items():
        if _applies(name, question):
          hits = answers_lib.has_answer(texts, question.answers, rule)
          first_hits[name].append(there[hits.argmax()] if hits.any() else -1)
    if progress:
      progress(low + len(batch), len(questions))
  return [
    _row(name, np.asarray(ranks), ks) for name, ranks in first_hits.items()
  ]


def _applies(rule: str, question: questions_lib.Question) -> bool:
  return (rule == 'regex') == (question.kind == 'regex')


def _matchers(questions, rules) -> dict[str, answers_lib.Rule]:
  """The rules that apply to at least one question."""
  if 'regex' in rules:
    raise ValueError(
      "rules: 'regex' applies to questions whose answers are regular "
      'expressions, always and to no others.'
    )
  wanted = [
    r for r in (*rules, 'regex') if any(_applies(r, q) for q in questions)
  ]
  return {name: answers_lib.make_rule(name) for name in wanted}


def _retrieve(
  retrieve: RetrieveFn, batch: Sequence[questions_lib.Question], k: int
) -> Int[np.ndarray, 'b k']:
  ids = np.asarray(retrieve([question.question for question in batch], k))
  if ids.shape != (len(batch), k):
    raise ValueError(
      f'The retriever gave ids of shape {ids.shape}, expected '
      f'({len(batch)}, {k}).'
    )
  return ids


def _row(rule: str, ranks: np.ndarray, ks: Sequence[int]) -> Recall:
  shares = {
    k: bootstrap.bootstrap(((ranks >= 0) & (ranks < k)).astype(np.float64))
    for k in ks
  }
  return Recall(rule, ranks, shares)


def tables(
  name: str,
  retrieve: RetrieveFn,
  blocks: blocks_lib.BlockStore,
  settings: Any,
) -> Iterator[tuple[str, list[Recall]]]:
  """Yield each file of questions with a retriever's recall.

  Args:
    name: the retriever's, shown while it works.
    settings: section of a config with questions (files), max_questions (of each
      file; 0 for all), ks and rules.
  """
  for file in settings.questions:
    questions = questions_lib.read_questions(file)
    if settings.max_questions:
      questions = questions[: settings.max_questions]
    with progress.bar(f'{name} {file}'.strip(), 'questions') as update:
      table = recall_table(
        questions,
        retrieve,
        lambda ids: blocks.texts(ids.tolist()),
        settings.ks,
        settings.rules,
        progress=update,
      )
    yield str(file), table


def measure(
  retrievers: Mapping[str, RetrieveFn],
  blocks: blocks_lib.BlockStore,
  settings: Any,
) -> list[dict[str, Any]]:
  """Measure the recall of several retrievers on several files of questions.

  Args:
    retrievers: name -> retriever.
    settings: as those of `tables`.

  Returns:
    Rows of questions_file, retriever, rule, questions and recall@k, by file.
  """
  rows = [
    {'questions_file': file, 'retriever': name, **row.to_json()}
    for name, retrieve in retrievers.items()
    for file, table in tables(name, retrieve, blocks, settings)
    for row in table
  ]
  return sorted(
    rows, key=lambda x: settings.questions.index(x['questions_file'])
  )
