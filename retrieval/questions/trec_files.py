# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""TREC's runs and relevance judgments, the files that trec_eval reads.

  run:   QUESTION Q0 BLOCK RANK SCORE TAG
  qrels: QUESTION 0 BLOCK GRADE, relevant where GRADE is above 0

Fields stand between blanks; `identifier` makes a name without blanks of any name.
BEIR's qrels have the heading query-id, corpus-id, score and a tab between fields.
Order within a question is trec_eval's: by score as a 32-bit number, ties by the
block's name from Z to A; the field RANK is not read. Files may be packed as .gz, .bz2
or .xz. https://trec.nist.gov/trec_eval
"""

from collections.abc import Mapping, Sequence
import math
import os
import re
import urllib.parse

import numpy as np

from retrieval.readers import base, text_files
from retrieval.store import output_files

# question -> (block, score) of its blocks, best first
Run = dict[str, list[tuple[str, float]]]
# question -> block -> grade
Qrels = dict[str, dict[str, int]]
# fields of a line, and which of them are question, block and number
_RUN = ('question Q0 block rank score tag', (0, 2, 4))
_QRELS = ('question iteration block grade', (0, 2, 3))
_BEIR = ('query-id corpus-id score', (0, 1, 2))  # heading of its qrels
_ESCAPED = re.compile(r'[\s%]')


def identifier(name: str) -> str:
  """Return a name without blanks; two names never become one.

  In one with blanks, or with % at its end, these and % become %XX, as in a URL, and a %
  at the end marks it; others stay.
  """
  if not re.search(r'\s|%$', name):
    return name
  return _ESCAPED.sub(lambda match: urllib.parse.quote(match[0]), name) + '%'


def write_run(path: str | os.PathLike, run: Run, tag: str) -> None:
  """Write a run.

  A score that is not below the score before it is lowered to the next 32-bit number,
  so that trec_eval keeps the order.

  Args:
    run: blocks in their order, whatever their scores; names as of `identifier`.
    tag: name of the system.

  Raises:
    ValueError: for a score that is not finite.
  """
  tag = identifier(tag)
  with output_files.writing(path, 'w') as f:
    for question, ranked in run.items():
      scores = _decreasing([score for _, score in ranked], question)
      for rank, ((block, _), score) in enumerate(
        zip(ranked, scores, strict=True), start=1
      ):
        f.write(f'{question} Q0 {block} {rank} {score:.9g} {tag}\n')


def _decreasing(scores: Sequence[float], question: str) -> list[float]:
  lower: list[np.float32] = []
  for score in np.asarray(scores, np.float32):
    if not np.isfinite(score):
      raise ValueError(f'{question}: score {score}, expected a finite number.')
    if lower and score >= lower[-1]:
      score = np.nextafter(lower[-1], np.float32(-np.inf))
    lower.append(score)
  return [float(score) for score in lower]


def read_run(path: str | os.PathLike) -> Run:
  """Read a run.

  Raises:
    ValueError: for the first malformed line, a block that a question has twice, or a
      file without lines.
  """
  scores = _read(path, _RUN, float)
  return {question: _ranked(blocks) for question, blocks in scores.items()}


def _ranked(blocks: Mapping[str, float]) -> list[tuple[str, float]]:
  """Sort blocks as trec_eval does."""
  by_name = sorted(blocks.items(), key=lambda x: x[0].encode(), reverse=True)
  return sorted(by_name, key=lambda x: -np.float32(x[1]))


def write_qrels(path: str | os.PathLike, qrels: Qrels) -> None:
  """Write judgments."""
  with output_files.writing(path, 'w') as f:
    for question, grades in qrels.items():
      for block, grade in grades.items():
        f.write(f'{question} 0 {block} {grade:d}\n')


def read_qrels(path: str | os.PathLike) -> Qrels:
  """Read judgments, also BEIR's under their heading; raise as `read_run` does."""
  return _read(path, _QRELS, int)


def relevance(
  run: Run, qrels: Qrels, questions: Sequence[str], depth: int
) -> tuple[np.ndarray, np.ndarray]:
  """Look up the first blocks of questions in judgments.

  Args:
    questions: [n] names of the questions; one without blocks or judgments counts as
      without relevant blocks.
    depth: c, blocks of each question to look up.

  Returns:
    [n, c] int64 grade of the block of each rank, 0 where it is not judged or not
    relevant; and [n, m] int64 grades of the relevant blocks of each question, best
    first, then 0.
  """
  judged = [
    {block: grade for block, grade in qrels.get(x, {}).items() if grade > 0}
    for x in questions
  ]
  grades = np.zeros((len(questions), depth), np.int64)
  ideal = np.zeros((len(questions), max(map(len, judged), default=0)), np.int64)
  for row, (question, known) in enumerate(zip(questions, judged, strict=True)):
    ideal[row, : len(known)] = sorted(known.values(), reverse=True)
    row_grades = [known.get(x, 0) for x, _ in run.get(question, ())[:depth]]
    grades[row, : len(row_grades)] = row_grades
  return grades, ideal


def _read(path: str | os.PathLike, form: tuple, kind: type) -> dict[str, dict]:
  """Read question -> block -> number, an int or a finite float."""
  numbers, where = {}, ''
  for where, line in text_files.text_lines(path):
    fields, (names, chosen) = line.split(), form
    if form is _QRELS and ' '.join(fields) == _BEIR[0]:
      form = _BEIR
      continue
    if form is _BEIR:
      fields = [identifier(x.strip()) for x in line.split('\t')]
    if len(fields) != (count := len(names.split())):
      raise ValueError(
        f'{where}: {len(fields)} fields, expected {count}: {names}.'
      )
    question, block, text = (fields[i] for i in chosen)
    blocks = numbers.setdefault(question, {})
    if block in blocks:
      raise ValueError(
        f'{where}: block {block!r} of question {question!r} stands twice.'
      )
    try:
      blocks[block] = kind(text)
    except ValueError:
      blocks[block] = math.nan
    if not math.isfinite(blocks[block]):
      raise ValueError(
        f'{where}: {base.brief(text)}, expected a finite {kind.__name__}.'
      )
  if not where:
    raise ValueError(f'{path}: no lines; expected {form[0]} in each.')
  return numbers
