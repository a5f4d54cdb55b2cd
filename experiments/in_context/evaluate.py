# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Measure a decoder with and without passages in its prompt (Ram et al. 2023).

  python -m experiments.evaluate \
    --config=configs/in_context_smollm2.py --config.evaluate.workdir=DECODER \
    --config.data_dir=DATA --workdir=DIR

DECODER is a run of experiments.import_decoder, or any baseline; DATA is a folder of
experiments.prepare with the decoder's tokenizer. Before every
--config.evaluate.in_context.stride tokens of a document its last tokens retrieve a
passage of another document. Prints a table of bits per byte and writes
DIR/in_context.json. With --config.evaluate.questions the decoder answers questions
instead, after examples and the first passages of each in a file of retrieval results.
The closed-book twin has the same prompts without passages. Writes
DIR/in_context_qa.json and predictions_<set>_<split>_<on|off>.jsonl for
experiments.score.
"""

import dataclasses
import functools
import pathlib
from typing import Annotated

import jax
import numpy as np

from experiments.engine import progress, stages
from experiments.retro import evaluate as retro_evaluate, rows as rows_lib
from experiments.retro.config import Config
from experiments.retro_qa import (
  data as retro_qa_data,
  evaluate as retro_qa_evaluate,
)
from retrieval import settings as settings_lib
from retrieval.questions import question_sets
from retro_jax.data import qa_rows
from retro_jax.evaluation import in_context as in_context_lib
from retro_jax.trained import language_model, loading
from retro_jax.views import prompts as prompts_lib

FILE = 'in_context.json'
QA_FILE = 'in_context_qa.json'
_WHOLE = 1 << 20  # chunks of a window: prompts are read whole


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answering:
  """Prompts of questions: examples, passages and the question."""

  # training questions that the examples are drawn from, sets as NAME:SPLIT=FILE
  examples: tuple[str, ...] = ()
  num_examples: Annotated[int, settings_lib.Range(0, 2**10)] = 5
  # results of any retriever for the questions, in DPR's JSON form
  passages: tuple[str, ...] = ()
  num_passages: Annotated[int, settings_lib.Range(1, 2**10)] = 3
  passage_length: settings_lib.Size = 160  # tokens of a passage with its title
  max_new_tokens: settings_lib.Size = 16
  batch_size: settings_lib.Size = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluate(retro_evaluate.Evaluate):
  """Evaluation of a decoder with passages in its prompt."""

  in_context: in_context_lib.Settings = in_context_lib.Settings()
  # Sets that are answered, as NAME:SPLIT=FILE; (): bits per byte are measured.
  questions: tuple[str, ...] = ()
  max_questions: settings_lib.Count = 0  # of each set; 0: all
  # Whether files may hold another number of questions than is published.
  allow_other_counts: bool = False
  answering: Answering = Answering()


def draw_examples(evaluate: Evaluate, seed: int) -> list[tuple[str, str]]:
  """Draw questions with an answer each from the sets of answering.examples.

  Raises:
    ValueError: for too few questions with answers that are text.
  """
  settings = evaluate.answering
  count = settings.num_examples
  if not count:
    return []
  sets = question_sets.load_sets(
    settings.examples,
    allow_other_counts=evaluate.allow_other_counts,
    field='answering.examples',
  )
  known = [q for x in sets for q in x.questions if q.kind == 'string']
  if len(known) < count:
    raise ValueError(
      f'answering.examples: {len(known)} questions with answers that are text; '
      f'expected at least answering.num_examples={count}.'
    )
  order = np.random.default_rng(seed).permutation(len(known))[:count]
  return [(known[i].question, known[i].answers[0]) for i in order]


def answer(
  trained: language_model.LanguageModel,
  config: Config,
  workdir: str,
  evaluate: Evaluate,
) -> None:
  """Answer every set with passages and without; print and write the results."""
  settings = evaluate.answering
  sets = question_sets.load_sets(
    evaluate.questions, evaluate.max_questions, evaluate.allow_other_counts
  )
  if not settings.passages:
    raise ValueError(
      'config.evaluate.answering.passages is empty: expected files of retrieval '
      'results, as experiments.retrieve writes them.'
    )
  passages = {
    one.name: retro_qa_data.read_passages(settings.passages, one.questions)
    for one in sets
  }
  examples = draw_examples(evaluate, config.seed)

  def write(questions, mode):
    count = settings.num_passages if mode == 'on' else 0
    prompts = [
      qa_rows.few_shot_prompt(
        trained.data.tokenizer,
        examples,
        question.question,
        read[:count],
        passage_length=settings.passage_length,
      )
      for question, read in zip(
        questions.questions, passages[questions.name], strict=True
      )
    ]
    with progress.bar(f'{questions.name} {mode}', 'tokens') as update:
      written = trained.sample(
        [prompts_lib.TextPrompt('', ids=ids) for ids in prompts],
        temperature=0.0,
        max_new_tokens=settings.max_new_tokens,
        stop_strings=('\n',),
        context_chunks=_WHOLE,
        batch_size=settings.batch_size,
        progress=update,
      )
    return [' '.join(x.completion.split()) for x in written]

  content = {
    'step': trained.step,
    'examples': examples,
    'settings': dataclasses.asdict(settings),
  }
  retro_qa_evaluate.evaluate_sets(
    workdir, QA_FILE, sets, ('off', 'on'), write, content
  )


def evaluate(config: Config, workdir: str, settings: Evaluate) -> None:
  """Measure bits per byte, or exact match where questions are named."""
  stages.check_alone()
  trained = retro_evaluate.load(config, settings, workdir, on_mesh=False)
  if trained.model.config.cca_layers:
    raise ValueError(
      f'{settings.workdir or workdir}: a RETRO; expected a decoder without '
      'retrieval, as experiments.import_decoder writes it.'
    )
  if settings.questions:
    answer(trained, config, workdir, settings)
    return
  data, source, rows = trained.data, trained.data.source, []
  data.check_tokenizer()
  passages = in_context_lib.Passages(
    data.datastore.retrievers(trained.config).make(source),
    data.chunks('train'),
    data.tokenizer,
  )
  params = jax.device_put(trained.params)
  for mode, name, read in (
    ('off', 'without passages', None),
    ('on', f'passages by {source}', passages),
  ):
    with progress.bar(f'passages {mode}', 'documents') as update:
      measured = in_context_lib.evaluate(
        functools.partial(loading.batch_nll, trained.model, params),
        data.chunks(settings.split),
        data.tokenizer,
        settings.in_context,
        read,
        max_documents=settings.max_documents,
        progress=update,
      )
    rows.append(rows_lib.of(name, measured, retrieval=mode))
  rows_lib.report(
    pathlib.Path(workdir) / FILE,
    rows,
    {'minus_off': 'without passages'},
    title='Passages in the prompt',
    caption='Minus off: bits per byte less those without passages. ',
    source=source,
    step=trained.step,
    settings=dataclasses.asdict(settings.in_context),
  )
