# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows from which a reader learns: questions with given passages.

Passages are cut into blocks as those of a corpus. A block is right where the answer
was marked in its passage, or wherever it holds an answer if none was marked.

Dimension key: n questions, C blocks of each, B questions of a batch, R blocks that are
read, W widest span, L row.
"""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import hashlib
import json
import os
import pathlib
from typing import Any

from jaxtyping import Bool, Int
import numpy as np

from realm_jax.data import (
  examples,
  folder as data_folder,
  question_rows,
  reader_rows,
)
from retrieval import tokenization
from retrieval.questions import dpr_json, question_files
from retrieval.store import manifests, output_files
from retrieval.text import blocks as blocks_lib, corpus as corpus_lib

_PART = 64  # questions whose answers are looked for together
_FALL = 0.7  # how fast later blocks become rarer


@dataclasses.dataclass(frozen=True)
class Asked:
  """A question with its passages, best first."""

  question: question_files.Question
  contexts: tuple[dpr_json.Context, ...]


def read(paths: Iterable[str | os.PathLike]) -> list[Asked]:
  """Read files of `dpr_json.read_results`; join records of the same question."""
  contexts_of: dict[Any, list[dpr_json.Context]] = {}
  for path in paths:
    for x in dpr_json.read_results(path):
      contexts_of.setdefault((x.question, x.answers), []).extend(x.contexts)
  return [
    Asked(question_files.Question(f'{i}', *key), tuple(contexts))
    for i, (key, contexts) in enumerate(contexts_of.items())
  ]


def cut(
  asked: Iterable[Asked],
  folder: str | os.PathLike,
  tokenizer_path: str | os.PathLike,
  *,
  max_length: int,
  **how: Any,
) -> blocks_lib.BlockStore:
  """Cut all passages into blocks, or open the blocks of an earlier call.

  Args:
    folder: of such stores, each under its fingerprint.
    max_length: as of `blocks.build_block_store`.
    how: num_processes, executor and progress, as there.
  """
  passages = {_name(c): c for x in asked for c in x.contexts}
  lines = ''.join(
    json.dumps({'id': name, 'title': c.title, 'text': c.text}) + '\n'
    for name, c in passages.items()
  )
  tokenizer = tokenization.load_tokenizer(tokenizer_path)
  key = manifests.fingerprint([lines, tokenizer.fingerprint, max_length])
  root = pathlib.Path(folder) / key[:16]
  root.mkdir(parents=True, exist_ok=True)
  path = root / 'passages.jsonl'
  if not path.exists():
    output_files.write(path, lines)
  config = corpus_lib.CorpusConfig(kind='jsonl', path=str(path))
  return data_folder.build_blocks(
    root,
    corpus_lib.Corpus(config),
    tokenizer_path,
    tokens=how,
    blocks={'max_length': max_length} | how,
  )


def _name(context: dpr_json.Context) -> str:
  """Id of a passage."""
  text = f'{context.title}\n{context.text}'
  return hashlib.sha1(text.encode()).hexdigest()


class ReadingRows:
  """Rows of questions: their passages' blocks, with the answers marked."""

  def __init__(
    self,
    asked: Sequence[Asked],
    blocks: blocks_lib.BlockStore,
    tokenizer: tokenization.Tokenizer,
    layout: reader_rows.ReaderLayout,
    *,
    most: int,
    config: reader_rows.Reading,
  ):
    """Find the blocks of all questions.

    Questions with answers of which no block holds one are left out.

    Args:
      blocks: of `cut`.
      most: C, blocks of a question, the first of its passages.
    """
    self.blocks, self.layout, self._config = blocks, layout, config
    self._mark = tokenizer.encode('?').ids.tolist()
    place = _Places(blocks)
    marked = [place.find(x) for x in asked]
    ids = examples.pad([[*x] for x in marked], most)
    self._ids = np.where(np.arange(most) < ids[1][:, None], ids[0], -1)
    self._marked = marked
    self._source = question_rows.QuestionSource(
      [x.question for x in asked], tokenizer, layout
    )
    parts = np.split(np.arange(len(asked)), range(_PART, len(asked), _PART))
    self._right = np.concatenate(
      [self._rows(x, self._ids[x])['beam_has_answer'] for x in parts]
    )
    # [n] bool, questions with an answer in a block, or without answers
    answered = np.asarray([bool(x.question.answers) for x in asked])
    self.usable = self._right.any(1) | (~answered & (self._ids[:, 0] >= 0))
    self.fingerprint = manifests.fingerprint(
      [
        self._source.fingerprint,
        blocks.fingerprint,
        [[*x.items()] for x in marked],
        [most, config.blocks, config.no_answer, config.no_mark],
      ]
    )

  def draw(
    self, numbers: Int[np.ndarray, ' B'], rng: np.random.Generator
  ) -> examples.Batch:
    """Return a batch to train on, as of `first`.

    Of each question a block with an answer is read, and others, the first more often;
    of some questions no such block, and some without their question mark.
    """
    ids = [self._choose(n, rng) for n in numbers.tolist()]
    unmarked = rng.random(len(numbers)) < self._config.no_mark
    return self._rows(numbers, np.stack(ids), unmarked)

  def first(
    self, numbers: Int[np.ndarray, ' B'], rng: np.random.Generator
  ) -> examples.Batch:
    """Return a batch of `reader_losses.loss` with the first R blocks of questions.

    No retriever scores them: beam_scores are 0.
    """
    del rng
    return self._rows(numbers, self._ids[numbers, : self._config.blocks])

  def _choose(self, number: int, rng: np.random.Generator) -> np.ndarray:
    """Return R blocks of a question, -1 for none."""
    ids, right = self._ids[number], self._right[number]
    order = rng.gumbel(size=len(ids)) - _FALL * np.log1p(np.arange(len(ids)))
    if rng.random() < self._config.no_answer:
      order[right] = -np.inf
    elif right.any():
      order[rng.choice(np.flatnonzero(right))] = np.inf
    order[ids < 0] = -np.inf
    chosen = np.argsort(-order, kind='stable')[: self._config.blocks]
    return np.where(order[chosen] > -np.inf, ids[chosen], -1)

  def _rows(
    self,
    numbers: Int[np.ndarray, ' B'],
    ids: Int[np.ndarray, 'B R'],
    unmarked: Bool[np.ndarray, ' B'] | None = None,
  ) -> examples.Batch:
    questions = self._source.tokens(numbers)
    if unmarked is not None:
      questions = [
        x[:-1] if x[-1:].tolist() == self._mark and without else x
        for x, without in zip(questions, unmarked, strict=True)
      ]
    rows = reader_rows.reader_rows(self.layout, self.blocks, ids, questions)
    rows |= self._source.gold_fields(numbers, self.blocks, ids, rows)
    correct = rows['reader_correct']
    counts = rows['reader_block_mask'].sum(-1)
    for i, j in np.argwhere(ids >= 0).tolist():
      spans = self._marked[numbers[i]].get(int(ids[i, j]))
      if spans is None:
        continue
      correct[i, j] = False
      for start, wider in spans:
        if wider < correct.shape[2] and start + wider < counts[i, j]:
          correct[i, j, wider, rows['reader_starts'][i, j] + start] = True
    return rows | {
      'row_valid': np.ones(len(ids), bool),
      'beam_valid': ids >= 0,
      'beam_scores': np.zeros(ids.shape, np.float32),
      'beam_has_answer': correct.any((2, 3)),
    }


# Start in the block and further tokens of each marked answer; None: none was marked.
Spans = list[tuple[int, int]] | None


class _Places:
  """Blocks of passages, and the marked answers in them."""

  def __init__(self, blocks: blocks_lib.BlockStore):
    self._blocks, tokens = blocks, blocks.tokens
    documents = blocks.documents(np.arange(blocks.num_blocks))
    numbers = np.arange(tokens.num_documents + 1)
    first = np.searchsorted(documents, numbers).tolist()
    # name of a passage -> its document and blocks
    self._of = {
      tokens.document_id(i): (i, range(*first[i : i + 2]))
      for i in range(tokens.num_documents)
    }

  def find(self, asked: Asked) -> Mapping[int, Spans]:
    """Return a question's blocks; of a passage, blocks with a marked answer come first."""
    marked: dict[int, Spans] = {}
    for context in asked.contexts:
      i, blocks = self._of.get(_name(context), (0, ()))  # () of an empty text
      spans: dict[int, Spans] = dict.fromkeys(blocks)
      if context.answer_start:
        spans = {b: [] for b in blocks}
        answers = asked.question.answers
        for answer in zip(answers, context.answer_start, strict=False):
          self._mark(i, spans, *answer)
      for block in sorted(blocks, key=lambda b: not spans[b]):
        if marked.get(block) is None:
          marked[block] = spans[block]
    return marked

  def _mark(self, i: int, spans: dict, answer: str, start: int) -> None:
    """Add the answer that begins at a character of document i to its block."""
    tokens = self._blocks.tokens
    text, bounds = tokens.text(i), tokens.token_bytes(i)
    if start < 0 or not text.startswith(answer, start):
      return
    low = len(text[:start].encode())
    first = int(np.searchsorted(bounds[:, 1], low, 'right'))
    limit = low + len(answer.encode())
    past = int(np.searchsorted(bounds[:, 0], limit, 'left'))
    for block, marked in spans.items():
      begin, end = self._blocks.token_spans[block].tolist()
      if begin <= first < past <= end:
        marked.append((first - begin, past - first - 1))
