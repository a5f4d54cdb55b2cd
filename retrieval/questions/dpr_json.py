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
import reprlib
from typing import Any

from retrieval.readers import base
from retrieval.store import store

_BLANKS = ' \t\r\n'
_STEP = 1 << 20
# Longest string. A JSON error farther from the end of the text read so far is an
# error of the file.
_LONGEST = 1 << 23
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
  negative: tuple[Context, ...] = ()  # random contexts that do not answer it
  # contexts that seem to answer it and do not
  hard_negative: tuple[Context, ...] = ()
  dataset: str = ''  # name of the data set; '' where unknown


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


def write_results(path: str | os.PathLike, results: Iterable[Result]) -> int:
  """Write retrieval results in DPR's form; return their number."""
  return _write(path, map(_result_record, results))


def read_training(path: str | os.PathLike) -> Iterator[Example]:
  """Yield the training examples of a file; raise as `read_results` does."""
  for where, record in records(path):
    yield Example(
      question=base.string(record, 'question', where),
      answers=_answers(record, where),
      positive=_contexts(record, 'positive_ctxs', where),
      negative=_contexts(record, 'negative_ctxs', where, optional=True),
      hard_negative=_contexts(
        record, 'hard_negative_ctxs', where, optional=True
      ),
      dataset=_dataset(record, where),
    )


def write_training(path: str | os.PathLike, examples: Iterable[Example]) -> int:
  """Write training examples in DPR's form; return their number."""
  return _write(path, map(_example_record, examples))


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


class _Buffer:
  """Text of a file from the current value on, read piece by piece."""

  def __init__(self, path: pathlib.Path):
    self.text, self.at = '', 0
    self._pieces = base.read_pieces(path, _STEP)

  def more(self, num_pieces: int = 1) -> bool:
    """Read more pieces; return False at the end of the file."""
    pieces = list(itertools.islice(self._pieces, num_pieces))
    self.text = self.text[self.at :] + ''.join(pieces)
    self.at = 0
    return bool(pieces)

  def peek(self) -> str:
    """Skip blanks and return the next character; '' at the end."""
    while True:
      while self.at < len(self.text) and self.text[self.at] in _BLANKS:
        self.at += 1
      if self.at < len(self.text):
        return self.text[self.at]
      if not self.more():
        return ''


def _values(path: pathlib.Path) -> Iterator[Any]:
  buffer, decoder = _Buffer(path), json.JSONDecoder()
  in_list = buffer.peek() == '['
  buffer.at += in_list
  number = 0
  while (character := buffer.peek()) and not (in_list and character == ']'):
    number += 1
    if in_list and number > 1:
      if character != ',':
        raise _broken(path, number, f'expected a comma, found {character!r}')
      buffer.at += 1
      buffer.peek()
    yield _value(buffer, decoder, path, number)
  if in_list and not character:
    raise _broken(path, number + 1, 'the file ends before its list does')
  buffer.at += in_list
  if rest := buffer.peek():
    raise _broken(path, number + 1, f'after the list stands {rest!r}')


def _value(
  buffer: _Buffer, decoder: json.JSONDecoder, path: pathlib.Path, number: int
) -> Any:
  num_pieces = 1
  while True:
    try:
      value, end = decoder.raw_decode(buffer.text, buffer.at)
    except RecursionError:
      raise _broken(path, number, 'not JSON (too deep)') from None
    except json.JSONDecodeError as e:
      # The end of the value may not be read yet: read twice as much each time.
      is_late = e.pos > len(buffer.text) - _LONGEST
      if not is_late or not buffer.more(num_pieces):
        raise _broken(path, number, f'not JSON ({e.msg})') from None
      num_pieces *= 2
      continue
    except ValueError:
      raise _broken(path, number, 'a number of too many digits') from None
    buffer.at = end
    return value


def _broken(path: pathlib.Path, number: int, message: str) -> ValueError:
  return ValueError(f'{path}, record {number}: {message}.')


def _dataset(record: dict, where: str) -> str:
  if record.get('dataset') is None:
    return ''
  return base.string(record, 'dataset', where)


def _answers(record: dict, where: str) -> tuple[str, ...]:
  values = base.items({'answers': [], **record}, 'answers', where)
  return tuple(
    base.string({f'answers[{i}]': value}, f'answers[{i}]', where)
    for i, value in enumerate(values)
  )


def _contexts(
  record: dict, name: str, where: str, optional: bool = False
) -> tuple[Context, ...]:
  if optional and record.get(name) is None:
    return ()
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
  title = base.string(
    {**value, 'title': value.get('title') or ''}, 'title', where
  )
  return Context(
    id=str(identifier),
    title=title,
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


def _result_record(result: Result) -> dict:
  contexts = []
  for context in result.contexts:
    record = {'id': context.id, 'title': context.title, 'text': context.text}
    if context.score is not None:
      record['score'] = str(context.score)
    if context.has_answer is not None:
      record['has_answer'] = context.has_answer
    contexts.append(record)
  return {
    'question': result.question,
    'answers': list(result.answers),
    'ctxs': contexts,
  }


def _example_record(example: Example) -> dict:
  record: dict[str, Any] = {
    'dataset': example.dataset,
    'question': example.question,
    'answers': list(example.answers),
  }
  for name in ('positive', 'negative', 'hard_negative'):
    record[f'{name}_ctxs'] = [
      {
        'title': context.title,
        'text': context.text,
        'score': context.score or 0.0,
        'passage_id': context.id,
      }
      for context in getattr(example, name)
    ]
  return record


def _write(path: str | os.PathLike, rows: Iterable[dict]) -> int:
  """Write a JSON list record by record, atomically."""
  count = 0
  with store.open_atomically(path, 'w') as f:
    for count, row in enumerate(rows, start=1):
      f.write('[\n' if count == 1 else ',\n')
      json.dump(row, f, ensure_ascii=False)
    f.write('\n]\n' if count else '[]\n')
  return count
