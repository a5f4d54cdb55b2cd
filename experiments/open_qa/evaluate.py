# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluate a reader on question sets, or a classifier on claim sets.

  python -m experiments.open_qa.evaluate --config=configs/open_qa_<name>.py \
    --config.evaluate.questions="('webquestions:test=test.json',)" --workdir=DIR
  python -m experiments.open_qa.evaluate --config=configs/claims_base.py \
    --config.evaluate.claims="('fever:dev=shared_task_dev.jsonl',)" --workdir=DIR

For each question set: exact_match (the best span is gold, by position),
official_exact_match and F1 of its text by the set's own rule, reader_oracle (a block
that was read holds a gold span), and the share of questions with an answer in the
first k blocks. Writes <workdir>/qa_evaluation.json and
predictions_<set>_<split>.jsonl, which experiments.open_qa.score reads.

For each claim set: accuracy, macro F1 and the table of classes; where the claims name
the documents of their evidence, how often such a block is among the first k and how
often it decided. Writes <workdir>/claims_evaluation.json and
claims_<set>_<split>.jsonl, a line {id, claim, label, predicted, probability, block,
title} for each claim; sets without labels give the lines alone.

--config.data_dir=DATA searches changed data; --config.evaluate.retriever=KIND finds the
blocks otherwise than in training; --config.reranker.path=DIR, a run of
experiments.reranking.train, orders the first --config.reranker.candidates anew.
"""

from collections.abc import Sequence
import dataclasses
import math
import pathlib
from typing import Any

from absl import logging
import ml_collections
import numpy as np

from experiments.engine import command, progress, reports
from experiments.open_qa import (
  claim_measures,
  settings as settings_lib,
  task as qa_task,
)
from realm_jax.serving import (
  answers as qa_answers,
  claim_answers,
  model_configs,
  trained_models,
)
from retrieval import settings as settings_check
from retrieval.questions import answer_search, bootstrap, question_sets, scoring

FILE = 'qa_evaluation.json'
CLAIMS_FILE = 'claims_evaluation.json'


def evaluate(
  answerer: qa_answers.Answerer,
  questions: question_sets.QuestionSet,
  ks: Sequence[int],
  rules: Sequence[str] = (),
  depth: int = 0,
) -> tuple[dict[str, Any], list[qa_answers.Answered]]:
  """Answer a question set and measure the answers.

  Args:
    ks: numbers of blocks to search for answers, at most the retrieved ones.
    rules: rules by which a block holds an answer; () for the set's own. Sets of
      regular expressions have one rule.
    depth: blocks of each beam to keep in the result; whole beams of large sets
      would fill the memory.

  Returns:
    Measures, name -> {mean, low, high} with a 95 % interval over questions,
    beside `dataset`, the number of `questions` and top_k for each rule; and all
    questions with their answers, in order.
  """
  own, data = questions.match_rules, answerer.trained.data
  chosen = own if questions.kind == 'regex' else tuple(rules) or own
  searches = {
    rule: answer_search.QuestionSearch(data.blocks, rule, data.tokenizer)
    for rule in chosen
  }
  values: dict[str, list[float]] = {'exact_match': [], 'reader_oracle': []}
  tops: dict[str, list[float]] = {}
  answered = []
  with progress.bar(questions.name, 'questions') as update:
    for found in answerer(questions.questions, update):
      right = bool(found.answers) and found.answers[0].correct
      values['exact_match'].append(float(right))
      values['reader_oracle'].append(float(found.reader_oracle))
      scores = questions.score(found.text, found.question)
      for name, value in scores.items():
        values.setdefault(name, []).append(value)
      depths = sorted({min(k, len(found.beam)) for k in ks})
      for rule, search in searches.items():
        rank = first_hit(search, found)
        for k in depths:
          tops.setdefault(f'top_{k}_{rule}', []).append(float(rank < k))
      answered.append(found.cut(depth))
  values |= tops
  measures = {
    name: dataclasses.asdict(bootstrap.bootstrap(np.asarray(x, np.float64)))
    for name, x in values.items()
  }
  named = {'dataset': questions.name, 'questions': len(answered)}
  return named | measures, answered


def first_hit(
  search: answer_search.QuestionSearch, found: qa_answers.Answered
) -> float:
  """Return the rank of the first block with an answer; infinity for none."""
  [hits] = search.find(found.beam[None], [found.question])
  return float(hits.argmax()) if hits.any() else math.inf


def write_predictions(
  path: pathlib.Path,
  answered: Sequence[qa_answers.Answered],
) -> None:
  """Write a JSON line for each question: question, prediction, its source."""
  scoring.write_predictions(path, map(_prediction, answered))


def _prediction(found: qa_answers.Answered) -> scoring.Prediction:
  fields = {'id': found.question.id}
  if found.answers:
    best = found.answers[0]
    [name] = best.blocks.names([best.block])
    fields |= {'score': best.score, 'block': best.block}
    fields |= {'passage': name, 'title': best.title}
  return scoring.Prediction(
    question=found.question.question, prediction=found.text, fields=fields
  )


def open_run(
  config: ml_collections.ConfigDict, workdir: str
) -> tuple[list[question_sets.QuestionSet], trained_models.TrainedReader]:
  """Load the question sets and the model that a config names.

  Raises:
    ValueError: for no sets, broken ones, or a run without a reader.
  """
  question_sets.require_sets(config.evaluate.questions, 'evaluate.questions')
  sets = question_sets.load_sets(
    config.evaluate.questions,
    config.evaluate.max_questions,
    config.questions.allow_other_counts,
  )
  return sets, _load(config, workdir, 'reader')


def _load(
  config: ml_collections.ConfigDict, workdir: str, part: str
) -> trained_models.TrainedReader:
  run = config.evaluate.workdir or workdir
  trained = trained_models.load(
    run, config.data_dir, part=part, step=config.evaluate.step
  )
  logging.info('Evaluating step %d of %s.', trained.step, run)
  kind = config.evaluate.retriever or trained.config.retriever
  trained = trained.with_retriever(kind, config.evaluate.words_weight)
  if config.reranker.path:
    trained = trained.with_reranker(**config.reranker)
  if config.colbert_index.model:
    trained = trained.with_colbert(config.colbert_index)
  return trained


def open_retriever(trained: trained_models.TrainedReader):
  """Return the model's retriever; show progress while an index is built."""
  with progress.bar('index', 'blocks') as update:
    return trained.retriever(progress=update)


def make_answerer(
  trained: trained_models.TrainedReader,
  settings: ml_collections.ConfigDict,
  retriever,
) -> qa_answers.Answerer:
  """Return an answerer with the beams and batches of `config.evaluate`."""
  with settings_check.within('config.evaluate'):
    return qa_answers.Answerer(
      trained,
      retriever,
      retriever_beam=settings.retriever_beam,
      reader_beam=settings.reader_beam,
      batch_size=settings.batch_size,
      read_at_once=settings.read_at_once,
      num_answers=settings.answers,
    )


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Evaluate a checkpoint, by default the newest."""
  if config.task == 'claims':
    evaluate_claims(config, workdir)
    return
  settings = config.evaluate
  sets, trained = open_run(config, workdir)
  answerer = make_answerer(trained, settings, open_retriever(trained))
  rows = []
  for questions in sets:
    row, answered = evaluate(answerer, questions, settings.ks, settings.rules)
    rows.append(row)
    path = pathlib.Path(workdir) / scoring.predictions_name(questions.name)
    write_predictions(path, answered)
  reports.print_shares(rows)
  result = {'step': trained.step, 'sets': rows}
  path = reports.write_json(pathlib.Path(workdir) / FILE, result)
  logging.info('Written to %s, the predictions beside it.', path)


def evaluate_claims(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Evaluate a checkpoint of a classifier of claims."""
  settings = config.evaluate
  if not settings.claims:
    raise ValueError(
      "evaluate.claims is empty: expected sets such as ('fever:dev=dev.jsonl',)."
    )
  trained = _load(config, workdir, 'classifier')
  labels = model_configs.claim_labels(trained.config)
  sets = [
    qa_task.load_claims(spec, labels, settings.max_claims)
    for spec in settings.claims
  ]
  question_sets.check_names([found.name for found in sets])
  retriever = open_retriever(trained)
  with settings_check.within('config.evaluate'):
    classifier = claim_answers.Classifier(
      trained,
      retriever,
      rule=settings.rule,
      retriever_beam=settings.retriever_beam,
      reader_beam=settings.reader_beam,
      batch_size=settings.batch_size,
    )
  rows = []
  for claim_set in sets:
    with progress.bar(claim_set.name, 'claims') as update:
      classified = list(classifier(claim_set.claims, update))
    name = f'claims_{claim_set.name.replace(":", "_")}.jsonl'
    path = pathlib.Path(workdir) / name
    claim_measures.write_predictions(
      path, classified, labels, trained.data.blocks
    )
    if not claim_set.labelled:
      logging.info('%s has no labels; classes in %s.', claim_set.name, path)
      continue
    row = {'dataset': claim_set.name}
    row |= claim_measures.measure(classified, len(labels), settings.ks)
    claim_measures.print_measures(row, labels)
    rows.append(row)
  result = {'step': trained.step, 'labels': labels, 'sets': rows}
  path = reports.write_json(pathlib.Path(workdir) / CLAIMS_FILE, result)
  logging.info('Written to %s, the predictions beside it.', path)


if __name__ == '__main__':
  command.main(run, settings_lib.Settings, writes=FILE)
