# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Zero-shot recall: the share of questions with an answer in k blocks.

Guu et al. 2020, table 2: before fine-tuning there is no reader, but an answer
in the text of the first 5 blocks shows that the retriever found the right
place. DPR's top-k accuracy is the same measure by another matching rule of
`retrieval.questions.answers`.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

from jaxtyping import Bool
from jaxtyping import Int
import numpy as np

from experiments.engine import progress
from retrieval import tokenization
from retrieval.questions import answers as answers_lib
from retrieval.questions import bootstrap
from retrieval.questions import questions as questions_lib
from retrieval.text import blocks as blocks_lib

_ANY_SLICE = 1024  # blocks read at a time when all blocks are searched

# [b] questions, k -> [b, k] int64 block ids, best first; -1 is no block.
RetrieveFn = Callable[[Sequence[str], int], np.ndarray]
# [n] int64 block ids -> their texts, without titles.
TextsFn = Callable[[np.ndarray], Sequence[str]]


@dataclasses.dataclass(frozen=True)
class Recall:
  """Recall of a retriever by one matching rule.

  Attributes:
    rule: name of the matching rule.
    question_ids: [n] ids of the questions.
    first_hits: [n] int64. Rank from 0 of the first block with an answer; -1 if
      no block has one.
    shares: k -> share of questions with an answer in their first k blocks, with
      the 95 % interval of a bootstrap over questions.
    any_block: share of questions with an answer in any block of the corpus;
      None if it was not measured.
  """

  rule: str
  question_ids: tuple[str, ...]
  first_hits: np.ndarray
  shares: dict[int, bootstrap.Interval]
  any_block: float | None = None

  def hits(self, k: int) -> Bool[np.ndarray, ' n']:
    """Return whether each question has an answer in its first k blocks."""
    if k not in self.shares:
      raise ValueError(f'k={k}: measured were {sorted(self.shares)}.')
    return (self.first_hits >= 0) & (self.first_hits < k)

  def to_json(self) -> dict[str, Any]:
    """Return the row as JSON values, without the ranks of single questions."""
    shares = {
      f'recall@{k}': dataclasses.asdict(x) for k, x in self.shares.items()
    }
    return {
      'rule': self.rule,
      'questions': len(self.question_ids),
      **shares,
      'any_block': self.any_block,
    }


def recall_table(
  questions: Sequence[questions_lib.Question],
  retrieve: RetrieveFn,
  texts_of: TextsFn,
  ks: Sequence[int] = (1, 5, 20, 100),
  rules: Sequence[str] = ('substring', 'dpr'),
  *,
  tokenizer: tokenization.Tokenizer | None = None,
  search_all: int = 0,
  batch_size: int = 256,
  progress: Callable[[int, int], None] | None = None,
) -> list[Recall]:
  """Measure a retriever on questions.

  The rule 'regex' measures questions whose answers are regular expressions;
  each of `rules` measures all other questions.

  Args:
    questions: questions with different ids.
    retrieve: the retriever.
    texts_of: returns the texts that are searched for answers.
    ks: numbers of blocks to look at.
    rules: matching rules of answers that are strings.
    tokenizer: tokenizer of the rule 'wordpiece'.
    search_all: number of all blocks, to search every block for answers, which
      takes minutes; 0 to skip the search.
    batch_size: number of questions in a call of the retriever.
    progress: called with (finished questions, all questions).

  Returns:
    A row for each rule.

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
  matchers = _matchers(questions, texts_of, rules, tokenizer)
  first_hits = {name: [] for name in matchers}
  for low in range(0, len(questions), batch_size):
    batch = questions[low : low + batch_size]
    ids = _retrieve(retrieve, batch, ks[-1])
    for name, blocks in matchers.items():
      rows = [i for i, q in enumerate(batch) if _applies(name, q)]
      wanted = [batch[i].answers for i in rows]
      found = answers_lib.match_blocks(ids[rows], wanted, blocks)
      first_hits[name].append(np.where(found.any(1), found.argmax(1), -1))
    if progress:
      progress(low + len(batch), len(questions))
  return [
    _row(name, questions, np.concatenate(ranks), ks, matchers[name], search_all)
    for name, ranks in first_hits.items()
  ]


def compare(a: Recall, b: Recall, k: int) -> bootstrap.Interval:
  """Return recall@k of `a` minus recall@k of `b`, by a paired bootstrap.

  Raises:
    ValueError: if questions or rules differ, or if k was not measured.
  """
  if a.rule != b.rule or a.question_ids != b.question_ids:
    raise ValueError(
      f'{len(a.question_ids)} questions by {a.rule!r} and '
      f'{len(b.question_ids)} by {b.rule!r}: expected the same of both.'
    )
  difference = a.hits(k).astype(np.float64) - b.hits(k)
  return bootstrap.bootstrap(difference)


def _applies(rule: str, question: questions_lib.Question) -> bool:
  return (rule == 'regex') == (question.kind == 'regex')


def _matchers(
  questions, texts_of, rules, tokenizer
) -> dict[str, answers_lib.PreparedBlocks]:
  """The rules that apply to at least one question."""
  if 'regex' in rules:
    raise ValueError(
      "rules: 'regex' applies to questions whose answers are regular "
      'expressions, always and to no others.'
    )
  wanted = [
    r for r in (*rules, 'regex') if any(_applies(r, q) for q in questions)
  ]
  return {
    name: answers_lib.PreparedBlocks(
      answers_lib.make_rule(name, tokenizer), texts_of
    )
    for name in wanted
  }


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


def _row(name, questions, ranks, ks, blocks, search_all) -> Recall:
  measured = [q for q in questions if _applies(name, q)]
  shares = {
    k: bootstrap.bootstrap(((ranks >= 0) & (ranks < k)).astype(np.float64))
    for k in ks
  }
  any_block = None
  if search_all:
    found = _found_anywhere(measured, ranks >= 0, blocks, search_all)
    any_block = float(found.mean())
  ids = tuple(question.id for question in measured)
  return Recall(name, ids, ranks, shares, any_block)


def _found_anywhere(
  questions: Sequence[questions_lib.Question],
  found: Bool[np.ndarray, ' n'],
  blocks: answers_lib.PreparedBlocks,
  num_blocks: int,
) -> Bool[np.ndarray, ' n']:
  """Whether each question has an answer in any block; `found` are known."""
  tests = {
    i: blocks.rule.compile(question.answers)
    for i, question in enumerate(questions)
    if not found[i]
  }
  for text in _all_texts(blocks, num_blocks):
    if not tests:
      break
    for i in [i for i, test in tests.items() if test(text)]:
      del tests[i]
  return ~np.isin(np.arange(len(questions)), list(tests))


def _all_texts(
  blocks: answers_lib.PreparedBlocks, num_blocks: int
) -> Iterator[str]:
  for low in range(0, num_blocks, _ANY_SLICE):
    yield from blocks.get(np.arange(low, min(low + _ANY_SLICE, num_blocks)))


def measure(
  retrievers: Mapping[str, RetrieveFn],
  blocks: blocks_lib.BlockStore,
  settings: Any,
) -> list[dict[str, Any]]:
  """Measure the recall of several retrievers on several files of questions.

  Args:
    retrievers: name -> retriever.
    blocks: blocks that are searched for answers.
    settings: section of a config with questions (files), max_questions (of each
      file; 0 for all), ks and rules.

  Returns:
    Rows of questions_file, retriever, rule, questions and recall@k.
  """
  rows = []
  for file in settings.questions:
    questions = questions_lib.read_questions(file)
    if settings.max_questions:
      questions = questions[: settings.max_questions]
    for name, retrieve in retrievers.items():
      with progress.bar(f'{name} {file}'.strip(), 'questions') as update:
        table = recall_table(
          questions,
          retrieve,
          lambda ids: blocks.texts(ids.tolist()),
          settings.ks,
          settings.rules,
          progress=update,
        )
      names = {'questions_file': str(file), 'retriever': name}
      rows += [names | row.to_json() for row in table]
  return rows
