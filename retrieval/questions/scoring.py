# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Files of predicted answers, and scores of predictions and of retrieved texts.

A line is {"question": ..., "prediction": ...} as in ORQA and EfficientQA, with
optional further fields. Each question of the set counts once; a question
without a prediction or a retrieved text counts as wrong.
"""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import json
import os
from typing import Any

from absl import logging
from jaxtyping import Float
import numpy as np

from retrieval.questions import (
  answers as answers_lib,
  dpr_json,
  qa_metrics,
  question_files,
  question_sets,
)
from retrieval.readers import base
from retrieval.store import output_files

TOP_K = (1, 5, 10, 20, 50, 100, 500, 1000, 5000)
FILE_RULE = 'file'


# A line of a file: `question`, `prediction`, which may be empty, and others, such as
# id, score, title and block.
Prediction = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scores:
  """Scores of a file on a question set."""

  # metric -> [n] scores from 0 to 1 in the set's order
  values: dict[str, Float[np.ndarray, ' n']]
  missing: int  # number of the set's questions that the file lacks
  # predictions without a word after normalisation; they equal the answer 'The'
  empty: int = 0
  unknown: int = 0  # number of the file's questions that the set lacks
  repeated: int = 0  # number of records after the first of the same question
  refused: int = 0  # number of ignored answers, which every text contains


def read_predictions(path: str | os.PathLike) -> list[Prediction]:
  """Read a file of predictions.

  Raises:
    ValueError: for the first invalid record, or a file without records.
  """
  predictions = []
  for where, record in dpr_json.records(path):
    for name in ('question', 'prediction'):
      base.string(record, name, where)
    predictions.append(record)
  return predictions


def write_predictions(
  path: str | os.PathLike, predictions: Iterable[Prediction]
) -> None:
  """Write predictions as JSON lines, atomically."""
  with output_files.writing(path, 'w') as f:
    for row in predictions:
      f.write(json.dumps(row, ensure_ascii=False) + '\n')


def predictions_name(name: str) -> str:
  """Return the file name of the predictions for a question set."""
  return f'predictions_{name.replace(":", "_")}.jsonl'


def score_predictions(
  question_set: question_sets.QuestionSet, predictions: Sequence[Prediction]
) -> Scores:
  """Score predicted answers with the metrics of `QuestionSet.score`.

  A prediction belongs to every question with its text, or to the one with its
  field 'id'. The last prediction of a question counts.

  Raises:
    ValueError: when the set lacks half of the predictions' questions or more.
  """
  chosen = _Chosen(question_set)
  for row in predictions:
    for question in chosen.find(row['question'], row.get('id')):
      chosen.of[question.id] = row['prediction']
  chosen.check()
  rows = [
    question_set.score(chosen.of[question.id], question)
    if question.id in chosen.of
    else {}
    for question in question_set.questions
  ]
  values = {
    metric: np.array([row.get(metric, 0.0) for row in rows])
    for metric in next(row for row in rows if row)
  }
  empty = sum(not qa_metrics.normalize_answer(x) for x in chosen.of.values())
  return chosen.scores(values, empty=empty)


def score_retrieval(
  question_set: question_sets.QuestionSet, results: Iterable[dpr_json.Result]
) -> Scores:
  """Score whether one of the first k texts contains an answer of the set.

  Titles are not searched. k are those of `TOP_K` up to the longest list of texts.

  Returns:
    Metrics 'RULE/top_K' for the rules of the set and, where every text has the
    field has_answer, 'file/top_K'.

  Raises:
    ValueError: when the set lacks half of the results' questions or more, or
      there is no text at all.
  """
  chosen, longest, said = _Chosen(question_set), 0, True
  rules = {n: answers_lib.make_rule(n) for n in question_set.match_rules}
  refused: set[tuple[str, str]] = set()
  for result in results:
    contexts = result.contexts
    longest = max(longest, len(contexts))
    said &= all(c.has_answer is not None for c in contexts)
    texts = [context.text for context in contexts]
    prepared = {name: rule.prepare(texts) for name, rule in rules.items()}
    for question in chosen.find(result.question):
      ranks = {FILE_RULE: _first(context.has_answer for context in contexts)}
      for name, rule in rules.items():
        usable = answers_lib.usable(rule, question.answers)
        refused |= {(name, x) for x in question.answers if x not in usable}
        ranks[name] = _first(map(rule.compile(usable), prepared[name]))
      chosen.of[question.id] = ranks
  chosen.check()
  if not longest:
    raise ValueError(f'{question_set.name}: no result holds any text.')
  values = {}
  for name in [*rules, *([FILE_RULE] if said else ())]:
    ranks = np.array(
      [
        chosen.of.get(question.id, {}).get(name, np.inf)
        for question in question_set.questions
      ]
    )
    for k in (k for k in TOP_K if k <= longest):
      values[f'{name}/top_{k}'] = (ranks < k).astype(np.float64)
  return chosen.scores(values, refused=len(refused))


def _first(hits: Iterable[Any]) -> float:
  """Index of the first hit, or infinity."""
  return next((float(i) for i, hit in enumerate(hits) if hit), np.inf)


class _Chosen:
  """The records of a file, by question of a set."""

  def __init__(self, question_set: question_sets.QuestionSet):
    self.of: dict[str, Any] = {}
    self._set = question_set
    # (text, id or '') of each record, and its number of questions
    self._seen: dict[tuple[str, str], int] = {}
    self._records = 0

  def find(
    self, text: str, identifier: Any = None
  ) -> tuple[question_files.Question, ...]:
    """Return the questions of a record, and count the record."""
    by_id = self._set.by_id.get(str(identifier))
    one = by_id is not None and by_id.question == text
    questions = (by_id,) if one else self._set.by_text.get(text, ())
    self._seen[text, by_id.id if one else ''] = len(questions)
    self._records += 1
    return questions

  @property
  def _unknown(self) -> int:
    return sum(not count for count in self._seen.values())

  def check(self) -> None:
    """Refuse a file with half of its questions or more from another set."""
    texts = {text for text, _ in self._seen}
    message = (
      f'{self._unknown} of {len(texts)} questions in the file are not among '
      f'the {len(self._set.by_text)} of {self._set.name}'
    )
    if len(texts) <= 2 * self._unknown:
      raise ValueError(f'{message}: is it of another set or split?')
    if self._unknown:
      logging.warning('%s; they do not count.', message)

  def scores(self, values: dict[str, np.ndarray], **counts: int) -> Scores:
    return Scores(
      values=values,
      **counts,
      missing=len(self._set.questions) - len(self.of),
      unknown=self._unknown,
      repeated=self._records - len(self._seen),
    )
