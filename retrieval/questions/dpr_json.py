# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""DPR's JSON forms (Karpukhin et al. 2020), which many other tools read and write.

  retrieval results: [{"question", "answers", "ctxs": [{"id", "title", "text",
    "score", "has_answer"}]}], contexts best first; also the input of FiD and Atlas.
  training data: [{"question", "answers", "positive_ctxs", "negative_ctxs",
    "hard_negative_ctxs"}] with the same contexts.

A file is a JSON list or JSON lines, may be packed as .gz, .bz2 or .xz, and is
read record by record, since results can take gigabytes.
"""

from collections.abc import Iterable, Iterator
import dataclasses
import json
import math
import os
import reprlib
from typing import Any

from retrieval import arguments
from retrieval.readers import base, json_files
from retrieval.store import store

_IDS = ('id', 'passage_id', 'psg_id')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
  """A passage; None or '' where the file does not have a field."""

  id: str = ''
  title: str = ''
  text: str
  score: float | None = None
  # whether the text contains an answer, by the rule of the file's writer
  has_answer: bool | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
  """Contexts retrieved for a question, best first."""

  question: str
  answers: tuple[str, ...] = ()
  contexts: tuple[Context, ...] = ()

  def __post_init__(self):
    arguments.make_tuple(self, 'answers')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example:
  """A training example of a retriever."""

  question: str
  answers: tuple[str, ...] = ()  # answers; may be empty
  positive: tuple[Context, ...] = ()
  # contexts that seem to answer it and do not
  hard_negative: tuple[Context, ...] = ()

  def __post_init__(self):
    arguments.make_tuple(self, 'answers')


def read_results(path: str | os.PathLike) -> Iterator[Result]:
  """Yield the retrieval results of a file.

  Raises:
    ValueError: for the first invalid record, or a file without records.
  """
  for where, record in records(path):
    yield Result(
      question=base.string(record, 'question', where),
      answers=_answers(record, where),
      contexts=_contexts(record, 'ctxs', where),
    )


def write_results(path: str | os.PathLike, results: Iterable[Result]) -> None:
  """Write retrieval results in DPR's form."""
  _write(
    path,
    (
      {
        'question': result.question,
        'answers': result.answers,
        'ctxs': [_result_context(context) for context in result.contexts],
      }
      for result in results
    ),
  )


def read_training(path: str | os.PathLike) -> Iterator[Example]:
  """Yield the training examples of a file; raise as `read_results` does."""
  for where, record in records(path):
    optional = {'hard_negative_ctxs': record.get('hard_negative_ctxs') or []}
    yield Example(
      question=base.string(record, 'question', where),
      answers=_answers(record, where),
      positive=_contexts(record, 'positive_ctxs', where),
      hard_negative=_contexts(optional, 'hard_negative_ctxs', where),
    )


def write_training(
  path: str | os.PathLike, examples: Iterable[Example]
) -> None:
  """Write training examples in DPR's form."""
  _write(
    path,
    (
      {
        'dataset': '',
        'question': example.question,
        'answers': example.answers,
        'positive_ctxs': [*map(_training_context, example.positive)],
        'negative_ctxs': [],
        'hard_negative_ctxs': [*map(_training_context, example.hard_negative)],
      }
      for example in examples
    ),
  )


def records(path: str | os.PathLike) -> Iterator[tuple[str, dict]]:
  """Yield (place, object) of a JSON list of objects, or of JSON lines.

  Raises:
    ValueError: for invalid JSON, an incomplete file, or a file without objects.
  """
  found = None
  for found in json_files.read(path):
    yield found
  if not found:
    raise ValueError(f'{path}: no records.')


def _answers(record: dict, where: str) -> tuple[str, ...]:
  values = base.items({'answers': [], **record}, 'answers', where)
  return tuple(
    base.string({f'answers[{i}]': value}, f'answers[{i}]', where)
    for i, value in enumerate(values)
  )


def _contexts(record: dict, name: str, where: str) -> tuple[Context, ...]:
  base.field(record, name, where)
  return tuple(
    _context(value, f'{where}, {name}[{i}]')
    for i, value in enumerate(base.items(record, name, where))
  )


def _context(value: Any, where: str) -> Context:
  value = base.check_type(value, where, dict)
  identifier = next((value[k] for k in _IDS if value.get(k) is not None), '')
  has_answer = value.get('has_answer')
  if not isinstance(has_answer, bool | None):
    raise ValueError(
      f"{where}: field 'has_answer': expected true or false, "
      f'found {has_answer!r}.'
    )
  title = value.get('title') or ''
  return Context(
    id=str(identifier),
    title=base.string({'title': title}, 'title', where),
    text=base.string(value, 'text', where),
    score=_score(value.get('score'), where),
    has_answer=has_answer,
  )


def _score(value: Any, where: str) -> float | None:
  """Parse a score, which DPR writes as a string."""
  try:
    score = None if value is None else float(value)
  except (TypeError, ValueError, OverflowError):
    score = math.nan
  if score is not None and not math.isfinite(score):
    raise ValueError(
      f"{where}: field 'score': expected a finite number, "
      f'found {reprlib.repr(value)}.'
    )
  return score


def _result_context(context: Context) -> dict[str, Any]:
  record = {'id': context.id, 'title': context.title, 'text': context.text}
  if context.score is not None:
    record['score'] = str(context.score)
  if context.has_answer is not None:
    record['has_answer'] = context.has_answer
  return record


def _training_context(context: Context) -> dict[str, Any]:
  return {
    'title': context.title,
    'text': context.text,
    'score': context.score or 0.0,
    'passage_id': context.id,
  }


def _write(path: str | os.PathLike, rows: Iterable[dict]) -> None:
  """Write a JSON list record by record, atomically."""
  with store.open_atomically(path, 'w') as f:
    between = '[\n'
    for row in rows:
      f.write(between)
      json.dump(row, f, ensure_ascii=False)
      between = ',\n'
    f.write('[]\n' if between == '[\n' else '\n]\n')
