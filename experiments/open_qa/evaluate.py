# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluators of a reader on question sets.

For each question set: exact_match (the best span is gold, by position),
official_exact_match and F1 of its text by the set's rule, contains (an answer stands
in its text), reader_oracle (a block that was read holds a gold span), and the share
of questions with an answer in the first k blocks. A reader with a null answer has
answered (its best span is likelier than the null answer) and answered_contains, too.
"""

import dataclasses
import pathlib
from typing import Literal

from absl import logging
import numpy as np

from experiments.engine import evaluations, progress, reports
from experiments.open_qa import config as config_lib, rankings, trained_reader
from realm_jax.trained import answers as qa_answers, block_reader, loading
from retrieval import settings
from retrieval.questions import (
  abstention,
  answer_search,
  question_sets,
  ranking,
  scoring,
  trec_files,
)
from retrieval.search import names
from retrieval.store import manifests, output_files

FILE = 'qa_evaluation.json'
_KS = (5, 10, 50, 100, 500, 1000, 5000)  # blocks searched for answers
_RISKS = (0.05, 0.1, 0.2, 0.3, 0.5)
_RETRIEVAL = ('retriever', 'words_weight', 'retriever_beam', 'reader_beam')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluate:
  """Evaluation of a reader."""

  step: str = ''  # a number, 'best' (by best_metric), or '' for the newest
  questions: tuple[str, ...] = ()  # as questions.train
  max_questions: settings.Count = 0  # of each set; 0: all
  retriever: Literal[('', *names.FOR_TEXTS)] = ''  # '': as trained
  words_weight: settings.Share = 0.0  # of weighted; 0: as trained
  # A TREC run, whose blocks are read in place of a retriever's, for one question set.
  run: str = ''
  retriever_beam: settings.SizeOrZero = 0  # 0: as trained
  reader_beam: settings.SizeOrZero = 0
  batch_size: settings.Size = 16
  # Also measure when the reader can be trusted: DIR/calibration.json, which bounds the
  # risk of experiments.ask, and the curve of risk and coverage as JSON and PNG. The
  # questions are some hundreds or more, held out from the training. An answer is right
  # if it contains one of the question's.
  calibrate: bool = False


def evaluate(
  config: config_lib.Config, workdir: str, options: Evaluate
) -> None:
  """Evaluate a checkpoint, by default the newest.

  config.data_dir searches changed data; config.reranker orders the retriever's first
  blocks anew. Writes <workdir>/qa_evaluation.json and predictions_<set>_<split>.jsonl,
  which experiments.score reads.
  """
  sets = question_sets.load_sets(
    options.questions,
    options.max_questions,
    config.questions.allow_other_counts,
    unanswerable=True,
  )
  trained = loading.load(
    workdir, config.data_dir, part='reader', step=options.step
  )
  logging.info('Evaluating step %d of %s.', trained.step, workdir)
  changes = {name: getattr(options, name) for name in _RETRIEVAL}
  trained = trained_reader.with_config(trained, config, **changes)
  answerer = block_reader.Answerer(
    trained,
    _retriever(trained, options, sets),
    batch_size=options.batch_size,
    num_answers=loading.MOST_SPANS,
  )
  rows, sure = [], []
  for questions in sets:
    row, predictions = measure(answerer, questions)
    rows.append(row)
    for line, question in zip(predictions, questions.questions, strict=True):
      scores = questions.score(line['prediction'], question)
      # Four digits keep the file small.
      sure.append((round(line['confidence'], 4), bool(scores['contains'])))
    path = pathlib.Path(workdir) / scoring.predictions_name(questions.name)
    scoring.write_predictions(path, predictions)
  reports.print_shares([row.facts for row in rows])
  path = pathlib.Path(workdir) / FILE
  evaluations.write(path, rows, step=trained.step)
  logging.info('Written to %s, the predictions beside it.', path)
  if options.calibrate:
    made_of = trained.made_of()
    names = [row.name for row in rows]
    made = abstention.calibrate(*zip(*sure, strict=True), names, made_of)
    write_calibration(made, pathlib.Path(trained.index_folder).parent)


def _retriever(trained, options: Evaluate, sets):
  if not options.run:
    with progress.bar('index', 'blocks') as update:
      return trained.open_retriever(update)
  if len(sets) != 1:
    raise ValueError(
      f'evaluate.run is of one question set, but evaluate.questions names {len(sets)}.'
    )
  ranked = rankings.Ranked(options.run, trec_files.read_run(options.run))
  return rankings.GivenBlocks(ranked, sets[0], trained.data.blocks)


def write_calibration(
  made: abstention.Calibration, folder: pathlib.Path
) -> None:
  """Write a calibration; print thresholds."""
  text = manifests.sealed(dataclasses.asdict(made))
  output_files.write(folder / abstention.FILE, text.encode())
  rows = []
  for risk in _RISKS:
    threshold = made.threshold(risk)
    answered = np.asarray(made.confidences) >= threshold
    rows.append([f'{risk:.0%}', f'{threshold:.3f}', f'{answered.mean():.1%}'])
  reports.print_table(('risk', 'least share', 'answered'), rows)


def measure(
  answerer: block_reader.Answerer, questions: question_sets.QuestionSet
) -> tuple[evaluations.Row, list[scoring.Prediction]]:
  """Answer a question set and measure the answers.

  Returns:
    The values of each question; as facts the measures, name -> {mean, low, high}
    with a 95 % interval over questions, beside `dataset`, the number of `questions`
    and top_k for each rule. And the predictions in order.
  """
  blocks = answerer.trained.data.blocks
  searches = {
    rule: answer_search.QuestionSearch(blocks, rule)
    for rule in questions.match_rules
  }
  values: dict[str, list[float]] = {'exact_match': [], 'reader_oracle': []}
  tops: dict[str, list[float]] = {}
  predictions = []
  with progress.bar(questions.name, 'questions') as update:
    for answered in answerer(questions.questions, update):
      right = bool(answered.answers) and answered.answers[0].correct
      scores = questions.score(answered.text, answered.question)
      scores |= {'exact_match': right, 'reader_oracle': answered.reader_oracle}
      if answerer.trained.model.config.null_answer:
        answers = not answered.null_is_likelier
        held = answers * scores['contains']
        scores |= {'answered': answers, 'answered_contains': held}
      for name, value in scores.items():
        values.setdefault(name, []).append(float(value))
      for rule, search in searches.items():
        [hits] = search.find(answered.beam[None], [answered.question])
        for k in sorted({min(k, len(hits)) for k in _KS}):
          top = float(hits[:k].any())
          tops.setdefault(f'top_{k}_{rule}', []).append(top)
      predictions.append(_prediction(answered))
  named = {'dataset': questions.name, 'questions': len(predictions)}
  arrays = {name: np.asarray(x) for name, x in (values | tops).items()}
  totals = {k: vars(x) for k, x in ranking.intervals(arrays).items()}
  row = {'values': arrays, 'facts': named | totals}
  return evaluations.Row(name=questions.name, **row), predictions


def _prediction(answered: qa_answers.Answered) -> scoring.Prediction:
  line = {
    'question': answered.question.question,
    'prediction': answered.text,
    'id': answered.question.id,
    'confidence': answered.confidence,
    'answerable': answered.answerable,
  }
  if answered.answers:
    best = answered.answers[0]
    [name] = best.blocks.names([best.block])
    line |= {'score': best.score, 'block': best.block}
    line |= {'passage': name, 'title': best.title}
  return line
