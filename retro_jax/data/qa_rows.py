# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
r"""Questions as tokens: rows of a RETRO or a Fusion-in-Decoder, few-shot prompts.

A RETRO reads passages as neighbors and learns to write the answer. Borgeaud et al.
2022, section 4.3 and appendix C.4. The text is "question: ... \n answer: ...", padded
on the left so that "answer:" ends a chunk: the answer's first token is the first that
its passages, "title: ..., source: ...", are read for.

Dimension key: L tokens of a row, C chunks, M chunk length, N neighbors, R neighbor
length, T any tokens.
"""

from collections.abc import Iterable, Sequence
import dataclasses
from typing import Any

from jaxtyping import Int
import numpy as np

from retrieval import tokenization
from retrieval.questions import dpr_json
from retrieval.store import manifests
from retro_jax.data import pipeline, samples

# Of few-shot prompts.
_TASK = 'Answer each question in a few words.\n\n'
_QUESTION = 'Question: {}\nAnswer:'
_END = '\n\n'


@dataclasses.dataclass(frozen=True, kw_only=True)
class QaLayout:
  """Lengths of rows."""

  chunk_length: int  # M
  prompt_chunks: int  # chunks of the question; "answer:" ends the last
  answer_length: int  # most tokens of an answer, with its EOS
  num_neighbors: int  # N, passages that are read; 0 is closed book
  neighbor_length: int  # R; longer passages are cut

  @property
  def prompt_length(self) -> int:
    """Tokens of the prompt with its padding."""
    return self.prompt_chunks * self.chunk_length

  @property
  def row_length(self) -> int:
    """L: the answer's last token is predicted, and not read."""
    return self.prompt_length + self.answer_length - 1


class QaWriter:
  """Writes questions, passages and answers as tokens."""

  form = 'retro'  # of the rows

  def __init__(self, layout: QaLayout, tokenizer: tokenization.Tokenizer):
    self.layout = layout
    self.tokenizer = tokenizer

  def prompt(self, question: str) -> Int[np.ndarray, ' T']:
    r"""BOS and "question: ... \n answer:"; of a longer one the end stays."""
    text = f'question: {question.strip()} \n answer:'
    ids = np.asarray(self.tokenizer.encode(text).ids, np.int32)
    end = ids[-(self.layout.prompt_length - 1) :]
    return np.concatenate([[self.tokenizer.bos_id], end]).astype(np.int32)

  def answer(self, text: str) -> Int[np.ndarray, ' T']:
    """The answer after a blank, and EOS; of a longer one the beginning."""
    ids = self.tokenizer.encode(f' {text.strip()}').ids
    beginning = ids[: self.layout.answer_length - 1]
    return np.concatenate([beginning, [self.tokenizer.eos_id]]).astype(np.int32)

  def texts(
    self, question: str, passages: Sequence[dpr_json.Context]
  ) -> list[str]:
    """The texts of the neighbors."""
    del question
    return [f'title: {p.title}, source: {p.text}' for p in passages]

  def neighbors(
    self, question: str, passages: Sequence[dpr_json.Context]
  ) -> samples.ChunkNeighbors:
    """Exactly N neighbors; those without a passage are hidden."""
    size = self.layout.num_neighbors
    passages = [p for p in passages if p.text.strip()][:size]
    texts = self.texts(question, passages)
    tokens = [self.tokenizer.encode(text).ids.tolist() for text in texts]
    return samples.given_neighbors(
      tokens, self.layout.neighbor_length, [p.title for p in passages], size
    )

  def _nothing(self) -> samples.ChunkNeighbors:
    """N hidden neighbors."""
    size = self.layout.num_neighbors
    return samples.given_neighbors((), self.layout.neighbor_length, (), size)

  def row(
    self, question: str, answer: str, passages: Sequence[dpr_json.Context] = ()
  ) -> pipeline.Row:
    """A row of training.

    Args:
      passages: best first; the first N are read.

    Returns:
      As `pipeline.ChunkReader.read`, without leading axes. The answer's tokens
      alone are scored; the passages are the neighbors of the chunk before it.
    """
    size, written = self.layout.prompt_length, self.answer(answer)
    row = np.zeros(size + self.layout.answer_length, np.int32)
    prompt = self.prompt(question)
    row[size - len(prompt) : size] = prompt
    row[size : size + len(written)] = written
    place = np.arange(len(row))
    there = (place >= size - len(prompt)) & (place < size + len(written))
    fields = {
      'tokens': row[:-1],
      'targets': row[1:],
      'loss_mask': there[1:] & (place[1:] >= size),
      'segment_ids': there[:-1].astype(np.int32),
    }
    return fields | self._read(question, passages)

  def drawn(self, example: Any, rng: np.random.Generator) -> pipeline.Row:
    """The row of a question and its contexts with one of its answers."""
    answer = example.answers[int(rng.integers(len(example.answers)))]
    return self.row(example.question, answer, example.contexts)

  def _read(
    self, question: str, passages: Sequence[dpr_json.Context]
  ) -> pipeline.Row:
    """Neighbors of every chunk: [C, N, R], all hidden but the prompt's last."""
    c = self.layout
    if not c.num_neighbors:
      return {}
    chunks = -(-c.row_length // c.chunk_length)
    before = [self._nothing()] * (c.prompt_chunks - 1)
    tokens, mask = samples.stack(
      [*before, self.neighbors(question, passages)],
      chunks,
      (c.num_neighbors, c.neighbor_length),
    )
    return {'neighbors': tokens, 'neighbor_mask': mask}

  def prompt_to_continue(
    self, question: str, passages: Sequence[dpr_json.Context] = ()
  ) -> samples.Prompt:
    """The same question for `decode.sample`, with align_prompt.

    Returns:
      A prompt with the passages as neighbors of its last chunk, none elsewhere.
    """
    tokens = self.prompt(question).tolist()
    if not self.layout.num_neighbors:
      return samples.Prompt(tokens, ())
    before = -(-len(tokens) // self.layout.chunk_length) - 1
    nothing, read = self._nothing(), self.neighbors(question, passages)
    return samples.Prompt(tokens, [*[nothing] * before, read, nothing])


class FidWriter(QaWriter):
  """Rows of a Fusion-in-Decoder: the question stands in each passage.

  Izacard and Grave 2020, section 3: the encoder reads "question: ... title: ...
  context: ..." of each passage; the decoder reads nothing but the answer. Without
  passages the encoder reads "question: ..." alone, which is T5 closed book (Roberts
  et al. 2020). Of the layout, `num_neighbors` is at least 1, `prompt_chunks` is 1, and
  `answer_length` is `chunk_length`: all of the answer reads the passages.
  """

  form = 'fid'

  def prompt(self, question):
    """BOS alone: the decoder reads the question in its passages."""
    del question
    return np.array([self.tokenizer.bos_id], np.int32)

  def texts(self, question, passages):
    """The question with each passage, or alone where there is no passage."""
    asked = f'question: {question.strip()}'
    return [
      f'{asked} title: {p.title} context: {p.text}' for p in passages
    ] or [asked]


def make_dataset(
  examples: Sequence[Any],
  writer: QaWriter,
  *,
  train: bool,
  batch_size: int,
  process_count: int = 1,
  **settings: Any,
) -> Iterable[pipeline.Row]:
  """Batches of `writer.drawn`'s rows.

  Args:
    examples: at least one, as the writer takes them.
    train: see `pipeline.batches`; the last batch of a pass has empty rows.
    **settings: other arguments of `pipeline.batches`.

  Raises:
    ValueError: without an example, or for a batch that cannot be shared.
  """
  if not examples:
    raise ValueError('No questions: expected at least one with an answer.')
  first = writer.drawn(examples[0], np.random.default_rng(0))
  empty = {name: np.zeros_like(value) for name, value in first.items()}

  def write(number: int, rng: np.random.Generator) -> pipeline.Row:
    return empty if number < 0 else writer.drawn(examples[number], rng)

  numbers = [*range(len(examples))]
  numbers += [-1] * (-len(numbers) % (process_count if train else batch_size))
  return pipeline.batches(
    numbers,
    train=train,
    batch_size=batch_size,
    process_count=process_count,
    choose=write,
    **settings,
  )


def fingerprint(examples: Sequence[dpr_json.Result], writer: QaWriter) -> str:
  """Hash of the rows that a dataset gives, seed and batch apart."""
  return manifests.fingerprint(
    [
      [
        {
          'question': x.question,
          'answers': x.answers,
          'passages': [{'title': p.title, 'text': p.text} for p in x.contexts],
        }
        for x in examples
      ],
      writer.tokenizer.fingerprint,
      dataclasses.asdict(writer.layout),
      writer.form,
    ]
  )


def few_shot_prompt(
  tokenizer: tokenization.Tokenizer,
  examples: Sequence[tuple[str, str]],
  question: str,
  passages: Sequence[dpr_json.Context] = (),
  *,
  passage_length: int,
) -> list[int]:
  """Write a prompt for a decoder that was not trained on questions.

  It has BOS, the task, examples, passages and the question (Ram et al. 2023, section
  7); the text up to the end of the line is the decoder's answer.

  Args:
    examples: questions, each with its answer.
    passage_length: tokens of a passage with its title, at most.
  """
  encode = tokenizer.encode
  shown = [f'{_QUESTION.format(q)} {answer}{_END}' for q, answer in examples]
  parts = [[tokenizer.bos_id], encode(_TASK + ''.join(shown)).ids]
  for passage in passages:
    text = ': '.join(filter(None, (passage.title, passage.text)))
    parts += [encode(text).ids[:passage_length], encode(_END).ids]
  parts.append(encode(_QUESTION.format(question)).ids)
  return [int(token) for part in parts for token in part]
