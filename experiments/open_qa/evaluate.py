# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluates a model that answers questions, on whole question sets.

  python -m experiments.open_qa.evaluate --config=configs/open_qa_<name>.py \
    --config.evaluate.questions="('webquestions:test=test.json',)" --workdir=DIR

For each set: exact_match (the best span is gold, by position), official_exact_match
and F1 of its text by the set's own rule, reader_oracle (a gold span stands in what was
read), and the share of questions with an answer in the first k blocks. Writes
<workdir>/qa_evaluation.json and predictions_<set>_<split>.jsonl, which
experiments.open_qa.score reads. Where config.data_dir names changed data, these are searched.
"""

from collections.abc import Sequence
import dataclasses
import math
import pathlib
from typing import Any

from absl import logging
import ml_collections
import numpy as np

from experiments.engine import command
from experiments.engine import progress
from experiments.engine import reports
from experiments.open_qa import answers as qa_answers
from experiments.open_qa import task as qa_task
from realm_jax.serving import index_folders
from retrieval.questions import answer_search
from retrieval.questions import bootstrap
from retrieval.questions import question_sets
from retrieval.questions import scoring
from retrieval.text import blocks as blocks_lib

FILE = 'qa_evaluation.json'


def evaluate(
  answerer: qa_answers.Answerer,
  questions: question_sets.QuestionSet,
  ks: Sequence[int],
  rules: Sequence[str] = (),
  depth: int = 0,
) -> tuple[dict[str, Any], list[qa_answers.Answered]]:
  """Answers a question set and measures the answers.

  Args:
    answerer: the model.
    questions: the set.
    ks: numbers of blocks to look at; no more than are retrieved.
    rules: by which a block holds an answer; () for the set's own. Sets of regular
      expressions have but one.
    depth: blocks of each beam that `answered` keeps; whole beams of large sets
      would fill the memory.

  Returns:
    measures: name -> {mean, low, high}, a 95 % interval over questions; `dataset`
    and the number of `questions` beside them; top_k per rule.
    answered: every question, in order.
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
  """Rank of the first block with an answer; infinity for none."""
  [hits] = search.find(found.beam[None], [found.question])
  return float(hits.argmax()) if hits.any() else math.inf


def write_predictions(
  path: pathlib.Path,
  answered: Sequence[qa_answers.Answered],
  answerer: qa_answers.Answerer,
) -> None:
  """Writes a JSON line for each question: question, prediction, its source."""
  blocks = answerer.trained.data.blocks
  scoring.write_predictions(path, (_prediction(x, blocks) for x in answered))


def _prediction(
  found: qa_answers.Answered, blocks: blocks_lib.BlockStore
) -> scoring.Prediction:
  fields = {'id': found.question.id}
  if found.answers:
    best = found.answers[0]
    [title] = blocks.titles([best.block])
    [name] = blocks.names([best.block])
    fields |= {'score': best.score, 'block': best.block}
    fields |= {'passage': name, 'title': title}
  return scoring.Prediction(
    question=found.question.question, prediction=found.text, fields=fields
  )


def open_run(
  config: ml_collections.ConfigDict, workdir: str
) -> tuple[list[question_sets.QuestionSet], qa_task.Trained, pathlib.Path]:
  """What a config asks to be measured: sets, model, folder of its index.

  Args:
    config: its section evaluate names the sets, and perhaps the run.
    workdir: of the run, unless evaluate.workdir is.

  Returns:
    The sets, the newest checkpoint and the folder of its index versions.

  Raises:
    FileNotFoundError: see `qa_task.load`.
    ValueError: see `qa_task.load` and `question_sets.load_sets`.
  """
  question_sets.require_sets(config.evaluate.questions, 'evaluate.questions')
  trained_in = pathlib.Path(config.evaluate.workdir or workdir)
  sets = question_sets.load_sets(
    config.evaluate.questions,
    config.evaluate.max_questions,
    config.questions.allow_other_counts,
  )
  trained = qa_task.load(trained_in, config.data_dir)
  logging.info('Evaluating step %d of %s.', trained.step, trained_in)
  return sets, trained, index_folders.index_folder(trained_in, config.data_dir)


def make_answerer(
  trained: qa_task.Trained, settings: ml_collections.ConfigDict, retriever
) -> qa_answers.Answerer:
  """An answerer with the beams and batches of `config.evaluate`."""
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
  """Evaluates the newest checkpoint."""
  settings = config.evaluate
  sets, trained, folder = open_run(config, workdir)
  answerer = make_answerer(trained, settings, trained.retriever(folder))
  rows = []
  for questions in sets:
    row, answered = evaluate(answerer, questions, settings.ks, settings.rules)
    rows.append(row)
    path = pathlib.Path(workdir) / scoring.predictions_name(questions.name)
    write_predictions(path, answered, answerer)
  content = {'step': trained.step, 'sets': rows}
  path = reports.write_json(pathlib.Path(workdir) / FILE, content)
  reports.print_shares(rows)
  logging.info('Written to %s, the predictions beside it.', path)


if __name__ == '__main__':
  command.main(run, computes=True)
