# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Blocks ranked for question sets by retrievers or in TREC runs, and their relevance.

Blocks go by `BlockStore.names`, escaped for TREC's files.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
import dataclasses
import pathlib
import time
from typing import Any

import numpy as np

from realm_jax.trained import beams, loading, reader_configs
from retrieval.questions import (
  answer_search,
  dpr_json,
  question_files,
  question_sets,
  trec_files,
)
from retrieval.text import blocks as blocks_lib

Progress = Callable[[int, int], None]


@dataclasses.dataclass(frozen=True)
class Ranked:
  """The blocks that one system ranks for the questions of a set."""

  name: str  # kind of retrieval, or name of a file
  run: trec_files.Run
  questions_per_sec: float | None = None  # None for the run of a file
  unit: str = ''  # of the scores; '' for the run of a file


class Names:
  """Names of blocks, or of their documents, in TREC's files, and back."""

  def __init__(self, blocks: blocks_lib.BlockStore, documents: bool = False):
    """Take the blocks; names are read when they are asked for."""
    self.blocks, self.documents = blocks, documents
    self._names: dict[int, str] = {}
    self._ids: dict[str, int] = {}

  def of(self, ids: Iterable[int]) -> list[str]:
    """Return the names of blocks, or of the document of each."""
    ids = list(ids)
    if self.documents and ids:
      ids = self.blocks.documents(np.asarray(ids)).tolist()
    new = [i for i in dict.fromkeys(ids) if i not in self._names]
    for i, name in zip(new, self._read(new), strict=True):
      self._names[i] = trec_files.identifier(name)
      self._ids[self._names[i]] = i
    return [self._names[i] for i in ids]

  def ids(self, names: Iterable[str], where: str) -> list[int]:
    """Return the blocks or documents of names.

    Raises:
      ValueError: for another name, naming `where`.
    """
    names = list(names)
    if not all(name in self._ids for name in names):
      self.of(range(self.blocks.num_blocks))
    for name in names:
      if name not in self._ids:
        raise ValueError(
          f'{where}: no block is named {name!r} ({self.blocks.num_blocks:,} blocks); '
          f'expected names such as {self.of([0])[0]!r}.'
        )
    return [self._ids[name] for name in names]

  def contexts(self, ids: Sequence[int]) -> Iterator[dict[str, str]]:
    """Yield the fields id, title and text of blocks or documents."""
    if not self.documents:
      parts = self.blocks.titles(ids), self.blocks.texts(ids)
    else:
      tokens = self.blocks.tokens
      parts = map(tokens.title, ids), map(tokens.text, ids)
    for row in zip(self._read(ids), *parts, strict=True):
      yield dict(zip(('id', 'title', 'text'), row, strict=True))

  def _read(self, ids: Sequence[int]) -> list[str]:
    if self.documents:
      return [self.blocks.tokens.document_id(i) for i in ids]
    return self.blocks.names(ids)


def name_of(kind: str) -> str:
  """Name a kind of retrieval: KIND, or KIND+NAME of the re-ranker's folder."""
  first, plus, reranker = kind.partition('+')
  return f'{first}{plus}{pathlib.Path(reranker).name}'


class Kind:
  """One of `beams.KINDS`, opened over the blocks of a trained model."""

  def __init__(
    self,
    trained: loading.TrainedReader,
    kind: str,
    batch_size: int,
    progress: Progress | None = None,
    candidates: int = 50,
    embedder: str = '',
  ):
    """Open the retriever; a missing index is built.

    Args:
      kind: KIND, or KIND+FOLDER of the run of a re-ranker, which orders the first
        `candidates` blocks.
      embedder: folder of an embedder in place of the model's.
    """
    self.name = name_of(kind)
    first, _, reranker = kind.partition('+')
    section = reader_configs.Reranker(path=reranker, candidates=candidates)
    trained = trained.with_retriever(first, reranker=section)
    self._batch_size = batch_size
    self._retriever = beams.TextRetriever(
      trained, trained.open_retriever(progress, embedder)
    )

  def rank(
    self,
    questions: Sequence[question_files.Question],
    names: Names,
    depth: int,
    progress: Progress,
  ) -> Ranked:
    """Retrieve the first `depth` blocks, or documents by their best block.

    The first batch is retrieved once more beforehand, since it may compile.
    """
    run, sec, size, count = {}, 0.0, self._batch_size, depth
    for low in (-1, *range(0, len(questions), size)):
      start, first = time.perf_counter(), max(low, 0)
      asked = questions[first : first + size]
      texts = [question.question for question in asked]
      texts += [''] * (size - len(asked))
      ids, scores = self._retriever.search(texts, count)
      while count < names.blocks.num_blocks and any(
        (row >= 0).all() and len({*names.of(row)}) < depth
        for row in ids[: len(asked)]
      ):  # too few documents
        count = min(2 * count, names.blocks.num_blocks)
        ids, scores = self._retriever.search(texts, count)
      if low < 0:
        continue
      sec += time.perf_counter() - start
      for question, row, values in zip(asked, ids, scores, strict=False):
        there = row >= 0
        blocks = names.of(row[there].tolist())
        ranked = {}
        for block, score in zip(blocks, values[there].tolist(), strict=True):
          ranked.setdefault(block, score)
        key = trec_files.identifier(question.id)
        run[key] = list(ranked.items())[:depth]
      progress(low + len(asked), len(questions))
    return Ranked(self.name, run, len(questions) / sec, self._retriever.unit)


def judge(
  runs: Sequence[Ranked],
  questions: question_sets.QuestionSet,
  search: answer_search.QuestionSearch,
  names: Names,
  depth: int,
  progress: Progress,
) -> trec_files.Qrels:
  """Judge the first `depth` blocks of all runs: 1 with an answer, else 0.

  A run with other blocks raises ValueError.
  """
  qrels: trec_files.Qrels = {}
  for done, question in enumerate(questions.questions, start=1):
    key = trec_files.identifier(question.id)
    rows = (one.run.get(key, ())[:depth] for one in runs)
    blocks = [*dict.fromkeys(block for row in rows for block, _ in row)]
    ids = np.array([names.ids(blocks, f'question {key!r}')], np.int64)
    [hits] = search.find(ids, [question])
    qrels[key] = dict(zip(blocks, hits.astype(int).tolist(), strict=True))
    progress(done, len(questions.questions))
  return qrels


def without_own(ranked: Ranked) -> Ranked:
  """Leave out documents with the name of their question, as BEIR does."""
  run = {q: [x for x in row if x[0] != q] for q, row in ranked.run.items()}
  return dataclasses.replace(ranked, run=run)


def check_run(ranked: Ranked, questions: question_sets.QuestionSet) -> None:
  """Raise ValueError for a run without any question of a set."""
  keys = {
    trec_files.identifier(question.id) for question in questions.questions
  }
  if not keys & ranked.run.keys():
    raise ValueError(
      f'{ranked.name}: none of its {len(ranked.run)} questions, such as '
      f'{next(iter(ranked.run))!r}, is of {questions.name}; expected ids such as '
      f'{min(keys)!r}.'
    )


class GivenBlocks(beams.BeamRetriever):
  """A run's blocks for the questions of one set, in a retriever's place."""

  unit, reranker = '', ''

  def __init__(
    self,
    ranked: Ranked,
    questions: question_sets.QuestionSet,
    blocks: blocks_lib.BlockStore,
  ):
    """Look up the blocks; raise ValueError for a name that none has."""
    check_run(ranked, questions)
    names = Names(blocks)
    self._rows = []
    for question in questions.questions:
      row = ranked.run.get(trec_files.identifier(question.id), [])
      where = f'{ranked.name}, question {question.id!r}'
      ids = names.ids([name for name, _ in row], where)
      self._rows.append((ids, [score for _, score in row]))

  def __call__(self, params: Any, rows: Any, texts: Any, k: int) -> beams.Beam:
    """See `beams.BeamRetriever`; a question without blocks has none."""
    del params, texts
    shape = len(rows['question_index']), k
    ids, scores = np.full(shape, -1), np.full(shape, -np.inf, np.float32)
    for line, at in enumerate(rows['question_index'].tolist()):
      row_ids, values = self._rows[at] if rows['row_valid'][line] else ([], [])
      ids[line, : len(row_ids)] = row_ids[:k]
      scores[line, : len(row_ids)] = values[:k]
    fields = {'beam_scores': np.where(ids >= 0, scores, np.float32(0))}
    return beams.Beam(ids, scores, fields)


def dpr_results(
  ranked: Ranked,
  questions: question_sets.QuestionSet,
  qrels: trec_files.Qrels,
  names: Names,
  count: int,
) -> Iterator[dpr_json.Result]:
  """Yield the first `count` blocks of each question in DPR's form."""
  for question in questions.questions:
    key = trec_files.identifier(question.id)
    row = ranked.run.get(key, [])[:count]
    ids = names.ids([name for name, _ in row], f'question {key!r}')
    grades = qrels.get(key, {})
    contexts = []
    for fields, (name, score) in zip(names.contexts(ids), row, strict=True):
      right = grades.get(name, 0) > 0 if grades else None
      contexts.append(dpr_json.Context(**fields, score=score, has_answer=right))
    yield dpr_json.Result(
      question=question.question,
      answers=question.answers,
      contexts=tuple(contexts),
    )
