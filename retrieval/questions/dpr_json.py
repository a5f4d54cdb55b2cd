# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""JSON forms of DPR (Karpukhin et al. 2020), and of other tools for results.

  retrieval results: [{"question", "answers", "ctxs": [{"id", "title", "text",
    "score", "has_answer"}]}], contexts best first; also the input of FiD and Atlas.
  rag_harness: lines {"query", "ctxs": [{"retrieval text"}]}, retrieval results for
    RAG-evaluation-harnesses.
  flashrag: {QUESTION: [{"id", "title", "text", "contents", "score"}]}, the retrieval
    cache of FlashRAG; "contents" is a line with the title, then the text. Its saved
    data sets, [{"question", "golden_answers", "output": {"retrieval_result",
    "pred"}}], are read, too.
  one passage: {"question", "answers", "title", "context", "answer_start"}, as SQuAD has
    them, is read as a result whose only context has the fields title, text and
    answer_start.

A file is a JSON list or JSON lines, may be packed as .gz, .bz2 or .xz, and is
read record by record, since results can take gigabytes; but FlashRAG's cache at once.
"""

from collections.abc import Iterable, Iterator
import dataclasses
import json
import math
import os
import re
import reprlib
from typing import Any

from retrieval import arguments
from retrieval.readers import base, json_files, text_files
from retrieval.store import output_files

_IDS = ('id', 'passage_id', 'psg_id')
_TEXTS = ('text', 'retrieval text', 'contents')
_CACHE = re.compile(r'\s*\{\s*"(?:[^"\\]|\\.)*(?<!ctxs)"\s*:\s*\[\s*(?:\{|\])')
FORMS = {'dpr': '.json', 'rag_harness': '.jsonl', 'flashrag': '.flashrag.json'}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
  """A passage; None or '' where the file does not have a field."""

  id: str = ''
  title: str = ''
  text: str
  score: float | None = None
  # whether the text contains an answer, by the rule of the file's writer
  has_answer: bool | None = None
  # character at which each answer begins, -1 for none; (): nobody marked them
  answer_start: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
  """Contexts retrieved for a question, best first."""

  question: str
  answers: tuple[str, ...] = ()
  contexts: tuple[Context, ...] = ()

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
      contexts=tuple(
        _context(value, f'{where}, ctxs[{i}]')
        for i, value in enumerate(base.items(record, 'ctxs', where))
      ),
    )


def write_results(
  path: str | os.PathLike, results: Iterable[Result], form: str = 'dpr'
) -> None:
  """Write retrieval results in one of `FORMS`, atomically."""

  def row(result: Result) -> str:
    contexts = [_result_context(context, form) for context in result.contexts]
    if form == 'flashrag':
      return f'{_dumps(result.question)}: {_dumps(contexts)}'
    asked = 'query' if form == 'rag_harness' else 'question'
    fields = {asked: result.question, 'answers': result.answers}
    return _dumps(fields | {'ctxs': contexts})

  opens, closes = {'rag_harness': ('', ''), 'flashrag': '{}'}.get(form, '[]')
  with output_files.writing(path, 'w') as f:
    f.write(opens)
    for i, line in enumerate(map(row, results)):
      f.write(',' * bool(i and opens) + '\n' * bool(i or opens) + line)
    f.write(f'\n{closes}\n' if closes else '\n')


def records(path: str | os.PathLike) -> Iterator[tuple[str, dict]]:
  """Yield (place, object) of a JSON list of objects, of JSON lines or of FlashRAG.

  Objects have DPR's fields, in place of or beside those of other tools.

  Raises:
    ValueError: for invalid JSON, an incomplete file, or a file without objects.
  """
  fields = None
  for where, record in _cache(path) or json_files.read(path):
    fields = dict(record)
    output = record.get('output')
    if isinstance(output, dict):
      others = {'ctxs': 'retrieval_result', 'prediction': 'pred'}
      fields |= {k: output[x] for k, x in others.items() if x in output}
    for name, other in (('question', 'query'), ('answers', 'golden_answers')):
      if other in record:
        fields.setdefault(name, record[other])
    if 'context' in record:
      passage = {'text': record['context']} | {
        name: record[name]
        for name in ('title', 'answer_start')
        if record.get(name)
      }
      fields.setdefault('ctxs', [passage])
    yield where, fields
  if fields is None:
    raise ValueError(f'{path}: no records.')


def _cache(path: str | os.PathLike) -> list[tuple[str, dict]]:
  """Read FlashRAG's retrieval cache; [] for another form."""
  if not _CACHE.match(next(text_files.pieces(path), '')):
    return []
  where = str(path)
  content = json_files.parse(''.join(text_files.pieces(path)), where)
  return [
    (
      f'{where}, question {question!r}',
      {'question': question, 'ctxs': contexts},
    )
    for question, contexts in content.items()
  ]


def _answers(record: dict, where: str) -> tuple[str, ...]:
  values = base.items({'answers': [], **record}, 'answers', where)
  return tuple(
    base.string({f'answers[{i}]': value}, f'answers[{i}]', where)
    for i, value in enumerate(values)
  )


def _context(value: Any, where: str) -> Context:
  value = base.check_type(value, where, dict)
  identifier = next((value[k] for k in _IDS if value.get(k) is not None), '')
  has_answer = value.get('has_answer')
  if not isinstance(has_answer, bool | None):
    raise ValueError(
      f"{where}: field 'has_answer' {has_answer!r}: expected true or false."
    )
  starts = base.items({'answer_start': [], **value}, 'answer_start', where)
  if not all(type(x) is int for x in starts):
    raise ValueError(
      f"{where}: field 'answer_start' {starts!r:.99}: expected integers."
    )
  field = next((name for name in _TEXTS if name in value), 'text')
  title, text = value.get('title') or '', base.string(value, field, where)
  if field == 'contents':
    first, _, text = text.partition('\n')
    title = title or first
  return Context(
    id=str(identifier),
    title=base.string({'title': title}, 'title', where),
    text=text,
    score=_score(value.get('score'), where),
    has_answer=has_answer,
    answer_start=tuple(starts),
  )


def _score(value: Any, where: str) -> float | None:
  """Parse a score, a number or its text."""
  try:
    score = None if value is None else float(value)
  except (TypeError, ValueError, OverflowError):
    score = math.nan
  if score is not None and not math.isfinite(score):
    raise ValueError(
      f"{where}: field 'score' {reprlib.repr(value)}: expected a finite number."
    )
  return score


def _result_context(context: Context, form: str) -> dict[str, Any]:
  text = 'retrieval text' if form == 'rag_harness' else 'text'
  record = {'id': context.id, 'title': context.title, text: context.text}
  if form == 'flashrag':  # which expects a number
    record['contents'] = f'{context.title}\n{context.text}'
    return record | {'score': context.score or 0.0}
  if context.score is not None:
    record['score'] = str(context.score)
  if context.has_answer is not None:
    record['has_answer'] = context.has_answer
  return record


def _dumps(value: Any) -> str:
  return json.dumps(value, ensure_ascii=False)
