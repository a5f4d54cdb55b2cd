# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Questions and passages for a RETRO, or a Fusion-in-Decoder, that answers."""

from collections.abc import Sequence
import pathlib

from absl import logging
import jax

from experiments.engine import progress
from experiments.retro_qa.config import Config
from retrieval import tokenization
from retrieval.questions import dpr_json, question_files
from retrieval.store import manifests
from retro_jax.data import qa_rows, reading_rows
from retro_jax.trained import loading

Passages = tuple[dpr_json.Context, ...]
_AT_ONCE = 64  # questions in one call of the retriever


def writer(
  config: Config, tokenizer: tokenization.Tokenizer, with_passages: bool = True
) -> qa_rows.QaWriter:
  """Return the writer of a config's rows."""
  count, fid = config.qa.num_passages, config.qa.is_fid
  if not (with_passages and config.reads_passages):
    count = 0
  layout = qa_rows.QaLayout(
    chunk_length=config.model.chunk_length,
    prompt_chunks=1 if fid else config.qa.prompt_chunks,
    answer_length=config.qa.answer_length,
    num_neighbors=max(count, 1) if fid else count,
    neighbor_length=config.model.neighbor_length,
  )
  kind = qa_rows.QaWriter
  if config.model.joint:
    kind = reading_rows.JointQaWriter
  if fid:
    kind = qa_rows.FidWriter
  return kind(layout, tokenizer)


def read_passages(
  paths: Sequence[str], questions: Sequence[question_files.Question]
) -> list[Passages]:
  """Read the passages of questions from DPR's files of retrieval results.

  Returns:
    The passages of each question, best first; () for a question of no file.

  Raises:
    ValueError: for files without any of the questions.
  """
  by_question: dict[str, Passages] = {}
  for path in paths:
    for result in dpr_json.read_results(path):
      by_question[result.question] = result.contexts
  missing = [q.question for q in questions if q.question not in by_question]
  if missing and len(missing) == len(questions):
    raise ValueError(
      f'{", ".join(paths)}: none of the {len(questions):,} questions is there, '
      f'such as {missing[0]!r}; expected results of their retrieval.'
    )
  if missing:
    logging.warning(
      f'{len(missing)} of {len(questions)} questions have no passages, such as '
      f'{missing[0]!r}.'
    )
  return [by_question.get(q.question, ()) for q in questions]


def passages(
  trained: loading.TrainedRetro,
  config: Config,
  questions: Sequence[question_files.Question],
  folder: pathlib.Path,
) -> list[Passages]:
  """The passages of the config's files, or the nearest chunks of each question.

  Chunks, with their continuations, are written to FOLDER in DPR's form, for
  experiments.score.
  """
  if config.qa.passages:
    return read_passages(config.qa.passages, questions)
  datastore, count = trained.data.datastore, config.qa.num_passages
  key = manifests.fingerprint(
    [
      [q.question for q in questions],
      count,
      datastore.index.fingerprint,
      trained.config.model.neighbor_length,
    ]
  )
  path = folder / f'passages-{key}.json'
  if path.is_file():
    return read_passages([str(path)], questions)
  lookup, results = datastore.lookup(trained.config), []
  with progress.bar('find passages', 'questions') as update:
    for i in range(0, len(questions), _AT_ONCE):
      results += _retrieve(lookup, questions[i : i + _AT_ONCE], count)
      update(len(results), len(questions))
  if not jax.process_index():
    dpr_json.write_results(path, results)
  return [result.contexts for result in results]


def _retrieve(lookup, questions, count) -> list[dpr_json.Result]:
  neighbors = lookup.retrieve(
    [q.question for q in questions], count, questions=True
  )
  return [
    dpr_json.Result(
      question=question.question,
      answers=question.answers,
      contexts=tuple(
        dpr_json.Context(
          id=str(read.ids[n]),
          title=read.titles[n],
          text=lookup.tokenizer.decode(read.tokens[n][read.mask[n]]),
          score=float(read.scores[n]),
        )
        for n in range(count)
        if read.ids[n] >= 0
      ),
    )
    for question, read in zip(questions, neighbors, strict=True)
  ]


def examples(
  trained: loading.TrainedRetro,
  config: Config,
  questions: Sequence[question_files.Question],
  folder: pathlib.Path,
) -> list[dpr_json.Result]:
  """Training examples: questions with an answer that can be written.

  Those whose answers are regular expressions are left out.
  """
  written = [q for q in questions if q.answers and q.kind != 'regex']
  if len(written) < len(questions):
    logging.warning(
      f'Left out {len(questions) - len(written)} of {len(questions)} questions '
      'without an answer that is text.'
    )
  by_question = [()] * len(written)
  if config.reads_passages:
    by_question = passages(trained, config, written, folder)
  return [
    dpr_json.Result(
      question=question.question, answers=question.answers, contexts=texts
    )
    for question, texts in zip(written, by_question, strict=True)
  ]
