# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Answers questions, and shows where the answers stand.

  python -m experiments.open_qa.ask --question='Who discovered penicillin?'

By itself this is the reader that comes with the package, over the packaged articles
of Wikipedia; over other documents with
--config.corpus.kind=jsonl --config.corpus.path=FILE --workdir=DIR --packaged
(--packaged once: it makes DIR a checkpoint like any other). --workdir=DIR is a run
of experiments.open_qa.train or a checkpoint of experiments.convert.convert. Without --question
one is asked for after the other; an empty line ends. --input=FILE asks those of a
file: .txt with one on each line, or .jsonl with a field "question" (and perhaps
"id"). --output=FILE.jsonl writes each answer with its score, title, document, block
and runner-ups; experiments.open_qa.score reads it. Where --config.data_dir names changed
data (experiments.open_qa.update), these answer.

The score is the logit of block and span together; the share is that of the spans
that were kept, the best 20.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
import importlib
import os
import pathlib
import sys

from absl import flags
from absl import logging
import ml_collections
from ml_collections import config_flags

from experiments.engine import command
from experiments.engine import progress
from experiments.open_qa import answer_view
from experiments.open_qa import answers as qa_answers
from experiments.open_qa import pack_reader
from experiments.open_qa import task as qa_task
from realm_jax.serving import beams
from realm_jax.serving import index_folders
from realm_jax.serving import packaged_reader
from retrieval.questions import asked_questions
from retrieval.questions import questions as questions_lib
from retrieval.questions import scoring
from retrieval.store import checkpoints

CONFIG = str(
  pathlib.Path(__file__).parents[2] / 'configs' / 'open_qa_reader.py'
)
_WORKDIR = 'runs/ask'  # of the packaged reader
_KEPT = 20  # spans of a question, which its shares are of
_PROMPT = 'question> '


def load(
  workdir: str | os.PathLike, data_dir: str = '', config_file: str = CONFIG
) -> qa_task.Trained:
  """Loads the newest checkpoint, to be asked.

  Args:
    workdir: of a run of qa_train, or of a converted checkpoint.
    data_dir: where the data lie now, if they have moved or changed.
    config_file: of the command that trains a model, for the error.

  Returns:
    The trained model.

  Raises:
    FileNotFoundError: if there is no checkpoint; it names this command.
    ValueError: see `qa_task.load`.
  """
  try:
    checkpoints.find(str(workdir))
  except FileNotFoundError:
    raise FileNotFoundError(
      f'{workdir}: no trained model here; {_how_to_train(config_file, workdir)}'
      '; or take the packaged reader: --packaged'
    ) from None
  return qa_task.load(workdir, data_dir)


def _how_to_train(config_file: str, workdir: str | os.PathLike) -> str:
  return (
    f'train one: python -m experiments.open_qa.train --config={config_file} '
    f'--workdir={workdir}'
  )


def take_packaged(
  config: ml_collections.ConfigDict, workdir: str | os.PathLike
) -> None:
  """Makes a checkpoint of the packaged reader where there is none yet.

  Args:
    config: of question answering; names the corpus.
    workdir: for `load` and all commands that take a run.

  Raises:
    FileNotFoundError: if none came with the package; it names the command that
      trains one.
    ValueError: see `pack_reader.unpack`; and if there is a checkpoint over
      another corpus.
  """
  try:
    saved = checkpoints.find(str(workdir)).config.corpus.to_dict()
  except FileNotFoundError:
    if not packaged_reader.exists():
      raise FileNotFoundError(
        f'{workdir}: no trained model here, and none came with the package; '
        f'{_how_to_train(CONFIG, workdir)}'
      ) from None
    pack_reader.unpack(config, workdir)
    return
  wanted = config.corpus.to_dict()
  if saved != wanted:
    differ = [
      f'{k} {saved[k]!r}, not {wanted[k]!r}'
      for k in wanted
      if saved.get(k) != wanted[k]
    ]
    raise ValueError(
      f'{workdir}: answers from a corpus of {"; ".join(differ)}; expected '
      'another --workdir, or this one removed.'
    )
  path, made = wanted['path'], pathlib.Path(workdir) / 'data' / 'tokens'
  stands = os.path.isfile(path) and made.exists()
  if stands and os.path.getmtime(path) > made.stat().st_mtime:
    logging.warning(
      '%s has changed since %s was made, where the change is not: '
      'experiments.open_qa.update makes it there.',
      *(path, made),
    )


def open_answerer(
  workdir: str | os.PathLike,
  data_dir: str = '',
  *,
  retriever: str = '',
  reader_beam: int = 0,
  answers: int = 5,
  batch_size: int = 1,
  read_at_once: int = 16,
  config_file: str = CONFIG,
) -> qa_answers.Answerer:
  """Opens a trained model with its blocks and what finds them.

  Args:
    workdir: of a run of qa_train, or of a converted checkpoint.
    data_dir: where the data lie now, if they have moved or changed.
    retriever: one of `beams.KINDS`; '' is the one of the training.
    reader_beam: blocks that are read; 0: as in training.
    answers: of each question, at least.
    batch_size: questions at a time.
    read_at_once: blocks that one device reads at a time.
    config_file: of the command that trains a model, for the error.

  Returns:
    What answers; see `ask`.

  Raises:
    FileNotFoundError: if there is no checkpoint; it names the command that makes
      one.
    ValueError: for a number or name that makes no sense.
  """
  _check(retriever, reader_beam, answers)
  trained = load(workdir, data_dir, config_file)
  if retriever:
    config = command.changed(trained.config, retriever=retriever)
    trained = dataclasses.replace(trained, config=config)
  folder = index_folders.index_folder(workdir, data_dir)
  return qa_answers.Answerer(
    trained,
    trained.retriever(folder),
    # Nothing but what is read decides the answer.
    retriever_beam=reader_beam or trained.config.lookup.reader_beam,
    reader_beam=reader_beam,
    batch_size=batch_size,
    read_at_once=read_at_once,
    num_answers=max(answers, _KEPT),
  )


def _check(retriever: str, reader_beam: int, answers: int) -> None:
  if answers < 1 or reader_beam < 0:
    raise ValueError(
      f'answers={answers}, reader_beam={reader_beam}: expected at least 1 '
      'answer, and blocks to read, 0 for as many as in training.'
    )
  if retriever not in ('', *beams.KINDS):
    raise ValueError(f'retriever {retriever!r}: expected one of {beams.KINDS}.')


def ask(
  answerer: qa_answers.Answerer, *texts: str
) -> list[qa_answers.Answered]:
  """Answers questions.

  Args:
    answerer: the model.
    *texts: the questions.

  Returns:
    Each with its answers.

  Raises:
    ValueError: for a question that is empty.
  """
  empty = [i for i, text in enumerate(texts) if not text.strip()]
  if empty:
    raise ValueError(f'Question {empty[0]} is empty: expected text.')
  return list(
    answerer(
      [questions_lib.Question(f'{i}', text, ()) for i, text in enumerate(texts)]
    )
  )


def write_answers(
  path: str | os.PathLike,
  answered: Iterable[qa_answers.Answered],
  answerer: qa_answers.Answerer,
  count: int,
) -> int:
  """Writes `answer_view.record` of each, whole or not at all; returns how many."""
  blocks = answerer.trained.data.blocks
  rows = (answer_view.record(found, blocks, count) for found in answered)
  return scoring.write_predictions(
    path,
    (
      scoring.Prediction(
        question=row.pop('question'),
        prediction=row.pop('prediction'),
        fields=row,
      )
      for row in rows
    ),
  )


def typed(read: Callable[[str], str] = input) -> Iterator[str]:
  """Questions as they are typed, up to an empty line, end of file or Ctrl-C."""
  prompt = ''
  if sys.stdin.isatty():
    prompt = _PROMPT
    with contextlib.suppress(ImportError):  # lines can then be edited
      importlib.import_module('readline')
  try:
    while text := read(prompt).strip():
      yield text
  except (EOFError, KeyboardInterrupt):
    if prompt:
      print()


def converse(
  answerer: qa_answers.Answerer, texts: Iterable[str], count: int
) -> None:
  """Answers one question after the other, each before the next is asked for."""
  console = progress.console()
  blocks = answerer.trained.data.blocks
  try:
    for text in texts:
      [found] = ask(answerer, text)
      answer_view.print_answers(found, blocks, console, count)
  except KeyboardInterrupt:  # while an answer was looked for
    print()


def _given(values) -> Sequence[questions_lib.Question]:
  """The questions of --question or --input; none to have them typed."""
  if values.question and values.input:
    raise ValueError('--question and --input: expected one of them.')
  if values.input:
    return asked_questions.read(values.input)
  if any(not text.strip() for text in values.question):
    raise ValueError('--question is empty: expected text.')
  if values.output and not values.question:
    raise ValueError('--output needs --input or --question.')
  return [
    questions_lib.Question(f'{i}', text.strip(), ())
    for i, text in enumerate(values.question)
  ]


def _config_file() -> str:
  return config_flags.get_config_filename(flags.FLAGS['config'])


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Answers what is given, or what is typed."""
  values = flags.FLAGS
  given = _given(values)
  _check(values.retriever, values.reader_beam, values.answers)
  settings = config.evaluate
  if values.packaged or flags.FLAGS['workdir'].using_default_value:
    take_packaged(config, workdir)
  answerer = open_answerer(
    workdir,
    config.data_dir,
    retriever=values.retriever,
    reader_beam=values.reader_beam,
    answers=values.answers,
    batch_size=min(settings.batch_size, max(1, len(given))),
    read_at_once=settings.read_at_once,
    config_file=_config_file(),
  )
  if not given:
    if sys.stdin.isatty():
      print('Ask; an empty line ends.')
    converse(answerer, typed(), values.answers)
    return
  if not values.output:
    console, blocks = progress.console(), answerer.trained.data.blocks
    for found in answerer(given):
      answer_view.print_answers(found, blocks, console, values.answers)
    return
  with progress.bar('ask', 'questions') as shown:
    answered = answerer(given, shown)
    count = write_answers(values.output, answered, answerer, values.answers)
  logging.info('%d answers written to %s.', count, values.output)


def define_flags() -> None:
  """What is asked, where answers go, and how they are found."""
  flags.DEFINE_multi_string('question', [], 'May repeat; none: typed.')
  flags.DEFINE_string('input', '', 'Questions, .txt or .jsonl.')
  flags.DEFINE_string('output', '', 'Where answers go as JSON lines.')
  flags.DEFINE_integer('answers', 5, 'The best one and its runner-ups.')
  flags.DEFINE_integer('reader_beam', 0, 'Blocks to read; 0: as trained.')
  flags.DEFINE_bool(
    'packaged', False, 'Where no model stands yet, take the packaged reader.'
  )
  flags.DEFINE_string(
    'retriever', '', 'dense, bm25 or random; empty: as trained.'
  )


if __name__ == '__main__':
  command.main(
    run,
    define_flags,
    computes=True,
    default_config=CONFIG,
    default_workdir=_WORKDIR,
  )
