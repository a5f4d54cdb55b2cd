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
import itertools
import json
import math
import os
import pathlib
import re
import reprlib
from typing import Any

from retrieval.readers import base
from retrieval.store import store

_STEP = 1 << 20
# Longest string. A JSON error farther from the end of the text read so far is an
# error of the file.
_LONGEST = 1 << 23
_BLANKS = re.compile(r'\s*')
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example:
  """A training example of a retriever."""

  question: str
  answers: tuple[str, ...] = ()  # answers; may be empty
  positive: tuple[Context, ...] = ()
  # contexts that seem to answer it and do not
  hard_negative: tuple[Context, ...] = ()


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
  path, found = base.existing(path), None
  for found in base.objects(_values(path), path):
    yield found
  if not found:
    raise ValueError(f'{path}: no records.')


def _values(path: pathlib.Path) -> Iterator[Any]:
  """Yield the values of a list or of lines; hold little more than one of them."""
  pieces, decoder = base.read_pieces(path, _STEP), json.JSONDecoder()
  text, number, num_pieces = next(pieces, '').lstrip(), 1, 1
  end = ']' if text.startswith('[') else ''
  at = len(end)
  while True:
    start = _BLANKS.match(text, at).end()
    try:
      if end and number > 1:
        if text[start : start + 1] != ',':
          raise json.JSONDecodeError("expected ','", text, start)
        start = _BLANKS.match(text, start + 1).end()
      value, at = decoder.raw_decode(text, start)
    except (ValueError, RecursionError) as e:
      # The end of the value may not be read yet: read twice as much each time.
      is_late = getattr(e, 'pos', -math.inf) > len(text) - _LONGEST
      more = ''.join(itertools.islice(pieces, num_pieces)) if is_late else ''
      if not more:
        if text[at:].strip() == end:
          return
        reason = getattr(e, 'msg', e)
        raise ValueError(
          f'{path}, record {number}: not JSON ({reason}).'
        ) from None
      text, at, num_pieces = text[at:] + more, 0, 2 * num_pieces
    else:
      yield value
      number, num_pieces = number + 1, 1


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
