# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Answer questions, and show the sources of the answers.

  python -m experiments.ask 'Who discovered penicillin?'

By default the packaged reader answers from the packaged articles of Wikipedia; with
--packaged --workdir=DIR --config.corpus.path=FILE it prepares DIR from your
documents. --workdir=DIR is such a folder, a run of task open_qa or a checkpoint of
experiments.convert; --workdir=DIR,DIR answers from the documents of several by the
reader of the first, and --config.data_dir=DATA from changed data
(experiments.update).

Several questions, each in quotes, are answered in turn; --question=TEXT, which may
repeat, does the same. Without any, questions are typed one after the other; an empty
line ends. --input=FILE reads questions from a file: .txt with one on each line, or
.jsonl with a field "question" (and perhaps "id"). --output=FILE.jsonl writes each
answer with its score, title, document, block and runner-ups; experiments.score reads
it.

The logit is the score of block and span; the share is among the best 20 spans, and
answers that overlap or are equal share it. Shares of a reader with a null answer are
probabilities beside all spans that it read and the null answer. docs/ask.md explains
--risk and --as_of, docs/retrievers.md --reranker and filters (config.lookup.where).
"""

from collections.abc import Iterable, Iterator, Sequence
import contextlib
import dataclasses
import importlib
import sys

from absl import flags, logging
import rich.console
import rich.markup
import rich.padding
import rich.table
import rich.text

from experiments.engine import command, progress
from experiments.open_qa import config as config_lib, trained_reader
from realm_jax.trained import answers, beams, block_reader, loading
from retrieval.questions import question_files, scoring
from retrieval.search import bm25, where as where_lib

_WORKDIR = 'runs/ask'  # of the packaged reader
_BATCH = 16  # questions answered together
_PROMPT = 'question> '
_MARK = 'bold black on bright_yellow'
_BRACKETS = ('[[', ']]')  # instead of the mark, without color


def print_answers(
  answered: answers.Answered,
  console: rich.console.Console,
  count: int = 5,
) -> None:
  """Print a question, its answer in its block, and the runner-ups."""
  console.print(rich.text.Text(answered.question.question, style='bold'))
  if message := answered.silence(count):
    console.print(rich.text.Text(f'  {message}'))
    return
  first, *others = answered.best(count)
  console.print(
    rich.text.Text.assemble(
      ('  ' + first.text, 'bold green'), f'   {answered.figures()}'
    )
  )
  if right := answered.calibrated():
    console.print(rich.text.Text(f'  {right}'))
  if first.source != first.text:
    console.print(rich.text.Text('  ' + first.source, style='italic'))
  marked = _marked(*first.highlight, console)
  console.print(rich.padding.Padding(marked, (0, 0, 0, 4)))
  if not others:
    return
  table = rich.table.Table(*answers.RUNNER_UPS)
  for answer in others:
    table.add_row(*map(rich.markup.escape, answer.cells))
  console.print(rich.padding.Padding(table, (0, 0, 0, 2), expand=False))


def _marked(
  text: str, span: Sequence[int], console: rich.console.Console
) -> rich.text.Text:
  start, end = span
  if not console.is_terminal or console.no_color:
    opened, closed = _BRACKETS
    text = f'{text[:start]}{opened}{text[start:end]}{closed}{text[end:]}'
    return rich.text.Text(text)
  marked = rich.text.Text(text)
  marked.stylize(_MARK, start, end)
  return marked


def typed() -> Iterator[str]:
  """Yield typed questions, up to an empty line, end of file or Ctrl-C."""
  prompt = ''
  if sys.stdin.isatty():
    prompt = _PROMPT
    with contextlib.suppress(ImportError):  # lines can then be edited
      importlib.import_module('readline')
  try:
    while text := input(prompt).strip():
      yield text
  except UnicodeDecodeError as error:
    raise ValueError(f'standard input: not UTF-8 text ({error}).') from None
  except (EOFError, KeyboardInterrupt):
    if prompt:
      print()


def converse(
  answerer: block_reader.Answerer, texts: Iterable[str], count: int
) -> None:
  """Answer one question after the other, each before the next is read."""
  console = progress.console()
  try:
    for text in texts:
      _tell_language([text])
      print_answers(*answerer.answer([text]), console, count)
  except KeyboardInterrupt:  # during an answer
    print()


def _asked(values) -> Sequence[question_files.Question]:
  """Return the questions of --question or --input; empty if they are typed."""
  if values.question and values.input:
    raise ValueError('--question and --input: expected one of them.')
  if values.input:
    return question_files.read_asked(values.input)
  if any(not text.strip() for text in values.question):
    raise ValueError('--question is empty: expected text.')
  if values.output and not values.question:
    raise ValueError('--output needs --input or --question.')
  return [
    question_files.Question(f'{i}', text.strip(), ())
    for i, text in enumerate(values.question)
  ]


def _tell_language(texts: Iterable[str]) -> None:
  if any(map(bm25.sets_no_blanks, texts)):
    logging.warning('The packaged reader reads English only.')


def run(config: config_lib.Config, workdir: str) -> None:
  """Answer the questions of flags, or typed ones."""
  values = flags.FLAGS
  questions = _asked(values)
  _tell_language(x.question for x in questions)
  loading.check_answers(values.answers, values.risk)
  if values.packaged or values['workdir'].using_default_value:
    trained_reader.take_packaged(config, workdir)
  reader = trained_reader.open_reader(workdir, config.data_dir)
  reranker = dataclasses.replace(config.reranker, path=values.reranker)
  reader = trained_reader.with_config(
    reader,
    config,
    retriever=values.retriever,
    reader_beam=values.reader_beam,
    reranker=reranker if values.reranker else None,
  )
  if values.as_of:
    blocks, where = reader.data.blocks, reader.config.lookup.where
    where = where_lib.until(where_lib.parse(where), blocks, values.as_of)
    reader = reader.with_retriever(where=where)
  with progress.bar('index', 'blocks') as update:
    answerer = reader.open_answerer(
      risk=values.risk,
      answers=values.answers,
      batch_size=min(_BATCH, max(1, len(questions))),
      progress=update,
    )
  if values.risk:
    logging.info('%s', answerer.calibration.promise(values.risk))
  if not questions:
    if sys.stdin.isatty():
      print('Ask; an empty line ends.')
    converse(answerer, typed(), values.answers)
  elif not values.output:
    console = progress.console()
    for answered in answerer.ask(questions):
      print_answers(answered, console, values.answers)
  else:
    with progress.bar('ask', 'questions') as update:
      answered = answerer.ask(questions, update)
      rows = (x.record(values.answers) for x in answered)
      scoring.write_predictions(values.output, rows)
    logging.info('%d answers written to %s.', len(questions), values.output)


if __name__ == '__main__':
  flags.DEFINE_multi_string(
    'question', [], 'A question; may repeat, and stand without the flag.'
  )
  flags.DEFINE_string('input', '', 'Questions, .txt or .jsonl.')
  command.define_output('output', '', 'Output file of answers, JSON lines.')
  flags.DEFINE_integer('answers', 5, 'Answers of each question.')
  flags.DEFINE_integer('reader_beam', 0, 'Blocks to read; 0: as trained.')
  flags.DEFINE_float(
    'risk', 0.0, 'Most wrong answers among those given; 0: no limit.'
  )
  flags.DEFINE_string(
    'as_of',
    '',
    "Last date of the documents to read, by field 'date' or 'year'.",
  )
  flags.DEFINE_bool(
    'packaged', False, 'Take the packaged reader into --workdir.'
  )
  flags.DEFINE_string(
    'reranker',
    '',
    'Folder of a cross-encoder, which orders the first blocks anew.',
  )
  flags.DEFINE_string(
    'retriever', '', f'One of {beams.KINDS}; empty: as trained or packaged.'
  )
  command.main(
    run,
    config_lib.Config,
    default_config=trained_reader.CONFIG,
    default_workdir=_WORKDIR,
    only_reads=True,
    text='question',
  )
