# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluators of a reader on question sets, and of a classifier on claim sets.

For each question set: exact_match (the best span is gold, by position),
official_exact_match and F1 of its text by the set's own rule, contains (an answer
stands in its text), reader_oracle (a block that was read holds a gold span), and the
share of questions with an answer in the first k blocks. A reader with a null answer
is scored by its best span, too, and has answered (this span is likelier than the null
answer) and answered_contains (answered, and contains). For each claim set: accuracy,
macro F1 and the table of classes; where the claims name the documents of their
evidence, how often such a block is among the first k and how often it decided.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import pathlib
from typing import Any, Literal

from absl import logging
import numpy as np

from experiments.engine import pictures, progress, reports
from experiments.open_qa import config as config_lib, rankings, trained_reader
from experiments.realm import recall
from realm_jax.objectives import claims as claims_model
from realm_jax.serving import (
  answers as qa_answers,
  block_reader,
  reader_configs,
  trained_models,
)
from retrieval import settings
from retrieval.questions import (
  abstention,
  answer_search,
  claims as claims_lib,
  question_sets,
  ranking,
  scoring,
  trec_files,
)
from retrieval.search import names
from retrieval.store import manifests, store
from retrieval.text import blocks as blocks_lib

FILE = 'qa_evaluation.json'
CURVE = 'risk_coverage'
_RISKS = (0.05, 0.1, 0.2, 0.3, 0.5)
CLAIMS_FILE = 'claims_evaluation.json'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluate:
  """Evaluation of a reader or a classifier."""

  step: str = ''  # a number, 'best' (by best_metric), or '' for the newest
  questions: tuple[str, ...] = ()  # as questions.train
  max_questions: settings.Count = 0  # or claims, of each set; 0: all
  claims: tuple[str, ...] = ()  # as claims.train
  retriever: Literal[('', *names.FOR_TEXTS)] = ''  # '': as trained
  words_weight: settings.Share = 0.0  # of weighted; 0: as trained
  # A TREC run, whose blocks are read in place of a retriever's, for one question set.
  run: str = ''
  # answers or evidence among the first k blocks
  ks: tuple[recall.Rank, ...] = (5, 10, 50, 100, 500, 1000, 5000)
  # How the class of a claim is chosen: best pair of block and class (released), or
  # marginal, summed over blocks.
  claim_rule: Literal[claims_model.RULES] = 'best'
  retriever_beam: settings.SizeOrZero = 0  # 0: as trained
  reader_beam: settings.SizeOrZero = 0
  batch_size: settings.Size = 16
  # Also measure when the reader can be trusted: DIR/calibration.json, which bounds the
  # risk of experiments.ask, and the curve of risk and coverage as JSON and PNG. The
  # questions are some hundreds or more, held out from the training. An answer is right
  # if it contains one of the question's.
  calibrate: bool = False


def evaluate(
  config: config_lib.Config | config_lib.ClaimsConfig,
  workdir: str,
  wanted: Evaluate,
) -> None:
  """Evaluate a checkpoint, by default the newest.

  config.data_dir searches changed data; config.reranker orders the retriever's first
  blocks anew. Writes <workdir>/qa_evaluation.json and predictions_<set>_<split>.jsonl,
  which experiments.score reads, or claims_evaluation.json and claims_<set>_<split>.jsonl.
  """
  if config.task == 'claims':
    evaluate_claims(config, workdir, wanted)
    return
  sets = question_sets.load_sets(
    wanted.questions,
    wanted.max_questions,
    config.questions.allow_other_counts,
    unanswerable=True,
  )
  trained = load(config, workdir, 'reader', wanted)
  answerer = block_reader.Answerer(
    trained,
    _retriever(trained, wanted, sets),
    retriever_beam=wanted.retriever_beam,
    reader_beam=wanted.reader_beam,
    batch_size=wanted.batch_size,
    num_answers=trained_models.KEPT,
  )
  rows, sure = [], []
  for questions in sets:
    row, predictions = measure(answerer, questions, wanted.ks)
    rows.append(row)
    for line, question in zip(predictions, questions.questions, strict=True):
      scores = questions.score(line['prediction'], question)
      # Four digits keep the file small.
      sure.append((round(line['confidence'], 4), bool(scores['contains'])))
    path = pathlib.Path(workdir) / scoring.predictions_name(questions.name)
    scoring.write_predictions(path, predictions)
  reports.print_shares(rows)
  _write(workdir, FILE, {'step': trained.step, 'sets': rows})
  if wanted.calibrate:
    made_of = trained.made_of(wanted.reader_beam)
    names = [row['dataset'] for row in rows]
    made = abstention.calibrate(*zip(*sure, strict=True), names, made_of)
    write_calibration(made, pathlib.Path(trained.index_folder).parent)


def _retriever(trained, wanted: Evaluate, sets):
  if not wanted.run:
    return trained_reader.open_retriever(trained)
  if len(sets) != 1:
    raise ValueError(
      f'evaluate.run is of one question set, but evaluate.questions names {len(sets)}.'
    )
  ranked = rankings.Ranked(wanted.run, trec_files.read_run(wanted.run))
  return rankings.GivenBlocks(ranked, sets[0], trained.data.blocks)


def write_calibration(
  made: abstention.Calibration, folder: pathlib.Path
) -> None:
  """Write a calibration and its curve of risk and coverage; print thresholds."""
  text = manifests.sealed(dataclasses.asdict(made))
  store.write_atomically(folder / abstention.FILE, text.encode())
  curve = made.curve()
  reports.write_json(folder / f'{CURVE}.json', {'points': curve})
  points = [{'x': 100 * p['coverage'], 'y': 100 * p['risk']} for p in curve]
  panel = {'x': 'questions answered, %', 'y': 'wrong of these, %'}
  panel['series'] = [{'name': '', 'points': points}]
  pictures.draw([panel], folder / f'{CURVE}.png')
  rows = []
  for risk in _RISKS:
    threshold = made.threshold(risk)
    answered = np.asarray(made.confidences) >= threshold
    rows.append([f'{risk:.0%}', f'{threshold:.3f}', f'{answered.mean():.1%}'])
  reports.print_table(('risk', 'least share', 'answered'), rows)


def _write(workdir: str, file: str, result: dict[str, Any]) -> None:
  path = reports.write_json(pathlib.Path(workdir) / file, result)
  logging.info('Written to %s, the predictions beside it.', path)


def load(
  config: Any, workdir: str, part: str, wanted: Evaluate
) -> trained_models.TrainedReader:
  """Load a reader or classifier, with the retriever that is evaluated."""
  trained = trained_models.load(
    workdir, config.data_dir, part=part, step=wanted.step
  )
  logging.info('Evaluating step %d of %s.', trained.step, workdir)
  return trained.with_retriever(
    wanted.retriever,
    words_weight=wanted.words_weight,
    colbert_index=config.colbert_index,
    reranker=config.reranker if config.reranker.path else None,
    where=config.lookup.where,
  )


def measure(
  answerer: block_reader.Answerer,
  questions: question_sets.QuestionSet,
  ks: Sequence[int],
) -> tuple[dict[str, Any], list[scoring.Prediction]]:
  """Answer a question set and measure the answers.

  Args:
    ks: numbers of blocks to search for answers, at most the retrieved ones.

  Returns:
    Measures, name -> {mean, low, high} with a 95 % interval over questions,
    beside `dataset`, the number of `questions` and top_k for each rule; and the
    predictions in order.
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
    for found in answerer(questions.questions, update):
      right = bool(found.answers) and found.answers[0].correct
      scores = questions.score(found.text, found.question)
      scores |= {'exact_match': right, 'reader_oracle': found.reader_oracle}
      if answerer.trained.model.config.null_answer:
        answered = not found.null_is_likelier
        held = answered * scores['contains']
        scores |= {'answered': answered, 'answered_contains': held}
      for name, value in scores.items():
        values.setdefault(name, []).append(float(value))
      for rule, search in searches.items():
        [hits] = search.find(found.beam[None], [found.question])
        for k in sorted({min(k, len(hits)) for k in ks}):
          top = float(hits[:k].any())
          tops.setdefault(f'top_{k}_{rule}', []).append(top)
      predictions.append(_prediction(found))
  named = {'dataset': questions.name, 'questions': len(predictions)}
  return named | _intervals(values | tops), predictions


def _intervals(values: Mapping[str, Any]) -> dict[str, dict[str, float]]:
  arrays = {name: np.asarray(x, np.float64) for name, x in values.items()}
  found = ranking.intervals(arrays)
  return {name: dataclasses.asdict(x) for name, x in found.items()}


def _prediction(found: qa_answers.Answered) -> scoring.Prediction:
  """Question, prediction and its source."""
  line = {
    'question': found.question.question,
    'prediction': found.text,
    'id': found.question.id,
    'confidence': found.confidence,
    'answerable': found.answerable,
  }
  if found.answers:
    best = found.answers[0]
    [name] = best.blocks.names([best.block])
    line |= {'score': best.score, 'block': best.block}
    line |= {'passage': name, 'title': best.title}
  return line


# Claims.


def evaluate_claims(
  config: config_lib.ClaimsConfig, workdir: str, wanted: Evaluate
) -> None:
  """Evaluate a checkpoint of a classifier; sets without labels give lines alone."""
  if not wanted.claims:
    raise ValueError(
      "evaluate.claims is empty: expected sets such as ('fever:dev=dev.jsonl',)."
    )
  trained = load(config, workdir, 'classifier', wanted)
  labels = reader_configs.claim_labels(trained.config.claims)
  sets = [
    claims_lib.load(spec, labels, wanted.max_questions)
    for spec in wanted.claims
  ]
  question_sets.check_names([found.name for found in sets])
  classifier = block_reader.Classifier(
    trained,
    trained_reader.open_retriever(trained),
    rule=wanted.claim_rule,
    retriever_beam=wanted.retriever_beam,
    reader_beam=wanted.reader_beam,
    batch_size=wanted.batch_size,
  )
  rows = []
  for claim_set in sets:
    with progress.bar(claim_set.name, 'claims') as update:
      classified = list(classifier(claim_set.claims, update))
    name = f'claims_{claim_set.name.replace(":", "_")}.jsonl'
    path = pathlib.Path(workdir) / name
    write_classified(path, classified, labels, trained.data.blocks)
    if not claim_set.labelled:
      logging.info('%s has no labels; classes in %s.', claim_set.name, path)
      continue
    row = {'dataset': claim_set.name}
    row |= measure_claims(classified, len(labels), wanted.ks)
    _print_claims(row, labels)
    rows.append(row)
  result = {'step': trained.step, 'labels': labels, 'sets': rows}
  _write(workdir, CLAIMS_FILE, result)


def macro_f1(table: np.ndarray) -> float:
  """Mean F1 of the classes of a table (gold by row) that are gold or predicted."""
  right, all_of = np.diag(table), table.sum(axis=0) + table.sum(axis=1)
  there = all_of > 0
  return float(np.mean(2 * right[there] / all_of[there]))


def measure_claims(
  classified: Sequence[qa_answers.Classified],
  num_classes: int,
  ks: Sequence[int],
) -> dict[str, Any]:
  """Measure classified claims whose labels are known.

  Returns:
    `claims`, their number; `confusion`; `macro_f1`; `accuracy`, `majority` (of
    the commonest class) and, over the claims that name documents,
    `evidence_top_k` and `evidence_decided`: {mean, low, high}, a 95 % interval.
  """
  gold = np.asarray([found.claim.label for found in classified])
  predicted = np.asarray([found.predicted for found in classified])
  table = np.zeros((num_classes, num_classes), np.int64)
  np.add.at(table, (gold, predicted), 1)
  values = {
    'accuracy': gold == predicted,
    'majority': gold == table.sum(axis=1).argmax(),
  }
  named = [found for found in classified if found.claim.titles]
  if named:
    evidence = np.stack([found.evidence for found in named])
    for k in sorted({min(k, evidence.shape[1]) for k in ks}):
      values[f'evidence_top_{k}'] = evidence[:, :k].any(axis=1)
    values['evidence_decided'] = np.asarray(
      [found.evidence[found.rank] for found in named]
    )
  return {
    'claims': len(classified),
    'confusion': table.tolist(),
    'macro_f1': macro_f1(table),
  } | _intervals(values)


def write_classified(
  path: pathlib.Path,
  classified: Sequence[qa_answers.Classified],
  labels: Sequence[str],
  blocks: blocks_lib.BlockStore,
) -> None:
  """Write a JSON line for each claim; an unknown `label` is null."""
  rows = []
  for found in classified:
    label = found.claim.label
    row = {
      'id': found.claim.id,
      'claim': found.claim.claim,
      'label': None if label == claims_lib.NO_LABEL else labels[label],
      'predicted': labels[found.predicted],
      'probability': float(found.probabilities[found.predicted]),
      'block': found.block,
      'passage': blocks.names([found.block])[0],
      'title': blocks.titles([found.block])[0],
    }
    rows.append(row)
  scoring.write_predictions(path, rows)


def _print_claims(row: dict[str, Any], labels: Sequence[str]) -> None:
  """Print the measures of a set, and its table of classes."""
  lines = [
    ('claims', f'{row["claims"]:,}'),
    ('macro_f1', f'{100 * row["macro_f1"]:.1f}'),
  ]
  shares = {name: x for name, x in row.items() if isinstance(x, dict)}
  lines += [(name, reports.share(x)) for name, x in shares.items()]
  reports.print_table(('measure', row['dataset']), lines)
  classes = zip(labels, row['confusion'], strict=True)
  lines = [(label, *map(str, counts)) for label, counts in classes]
  reports.print_table(('is \\ predicted', *labels), lines, wrap=True)
