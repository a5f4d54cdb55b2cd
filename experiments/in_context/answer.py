# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Answer questions by a decoder with passages in its prompt, and closed book.

  python -m experiments.in_context.answer --config=configs/in_context_smollm2.py \
    --config.evaluate.workdir=DECODER --workdir=DIR \
    --config.evaluate.questions="('webquestions:test=test.json',)" \
    --config.answering.examples="('webquestions:train=train.json',)" \
    --config.answering.passages="('webquestions_test.dense.json',)"

DECODER is a run of experiments.convert.import_decoder. A prompt is a few examples drawn
from training questions, the first passages of the question in a file of retrieval
results in DPR's form (experiments.open_qa.retrieve writes those of its retrievers),
and the question; the answer is written greedily up to the end of the line. The
closed-book twin has the same prompts without passages. Writes DIR/in_context_qa.json
and predictions_<set>_<split>_<on|off>.jsonl for experiments.open_qa.score.
"""

from collections.abc import Sequence
import dataclasses
import json
import pathlib
from typing import Any

from absl import logging
import jax
import ml_collections
import numpy as np

from experiments.engine import command, progress, reports
from experiments.in_context import (
  evaluate as in_context_evaluate,
  settings as settings_lib,
)
from experiments.retro_qa import data as retro_qa_data
from retrieval.questions import (
  question_sets,
  questions as questions_lib,
  ranking,
  scoring,
)
from retro_jax.data import question_prompts
from retro_jax.decoding import shared_prefix
from retro_jax.trained import loading

FILE = 'in_context_qa.json'
_COMPARED = ('official_exact_match', 'f1')  # with closed book
Config = ml_collections.ConfigDict


def draw_examples(config: Config) -> list[tuple[str, str]]:
  """Draw questions with an answer each from the sets of answering.examples.

  Raises:
    ValueError: for too few questions with answers that are text.
  """
  settings, specs = config.answering, config.answering.examples
  count = settings.num_examples
  if not count:
    return []
  question_sets.require_sets(specs, 'answering.examples')
  sets = question_sets.load_sets(specs, 0, config.questions.allow_other_counts)
  known = [q for x in sets for q in x.questions if q.kind == 'string']
  if len(known) < count:
    raise ValueError(
      f'answering.examples: {len(known)} questions with answers that are text; '
      f'expected at least answering.num_examples={count}.'
    )
  order = np.random.default_rng(config.seed).permutation(len(known))[:count]
  return [(known[i].question, known[i].answers[0]) for i in order]


def answer(
  trained: loading.TrainedRetro,
  config: Config,
  examples: Sequence[tuple[str, str]],
  questions: Sequence[questions_lib.Question],
  passages: Sequence[retro_qa_data.Passages],
  name: str,
) -> list[str]:
  """Write an answer to each question; '' where nothing was written."""
  settings = config.answering
  writer = question_prompts.PromptWriter(
    trained.data.tokenizer, settings.passage_length
  )
  with progress.bar(name, 'questions') as update:
    written = shared_prefix.write(
      trained.model,
      jax.device_put(trained.params),
      writer.prefix(examples),
      [
        writer.tail(question.question, read)
        for question, read in zip(questions, passages, strict=True)
      ],
      max_new_tokens=settings.max_new_tokens,
      is_done=writer.is_done,
      batch_size=settings.batch_size,
      progress=update,
    )
  return [writer.answer(tokens) for tokens in written]


def score(
  questions: question_sets.QuestionSet, answers: Sequence[str]
) -> dict[str, np.ndarray]:
  """Measures of each answer by the set's own rule: name -> [n]."""
  rows = [
    questions.score(text, question)
    for question, text in zip(questions.questions, answers, strict=True)
  ]
  values = {name: np.array([row[name] for row in rows]) for name in rows[0]}
  return values | {'answered': np.array([float(bool(x)) for x in answers])}


def _row(
  questions: question_sets.QuestionSet,
  mode: str,
  values: dict[str, np.ndarray],
  closed: dict[str, np.ndarray] | None,
) -> dict[str, Any]:
  """A mode of a set as JSON values, with the differences to closed book."""
  shares = ranking.intervals(values)
  if closed is not None:
    own = {name: values[name] for name in _COMPARED if name in values}
    gains = ranking.differences(own, closed)
    shares |= {f'{name}, less off': x for name, x in gains.items()}
  return {
    'name': f'{questions.name} {mode}',
    'dataset': f'{questions.name}, {mode}',
    'set': questions.name,
    'questions': len(questions.questions),
    'retrieval': mode,
    **{name: dataclasses.asdict(x) for name, x in shares.items()},
  }


def _write_predictions(path, questions, answers) -> None:
  predictions = (
    scoring.Prediction(
      question=question.question, prediction=text, fields={'id': question.id}
    )
    for question, text in zip(questions, answers, strict=True)
  )
  scoring.write_predictions(path, predictions)


def _read_passages(
  config: Config, questions: question_sets.QuestionSet
) -> list[retro_qa_data.Passages]:
  settings = config.answering
  found = retro_qa_data.read_passages(
    tuple(settings.passages), questions.questions
  )
  return [read[: settings.num_passages] for read in found]


def run(config: Config, workdir: str) -> None:
  """Answer every set with passages and without; print and write the results."""
  settings = config.evaluate
  question_sets.require_sets(settings.questions, 'evaluate.questions')
  sets = question_sets.load_sets(
    settings.questions,
    settings.max_questions,
    config.questions.allow_other_counts,
  )
  if not config.answering.passages or not config.answering.num_passages:
    raise ValueError(
      'answering.passages is empty or answering.num_passages 0: expected files of '
      'retrieval results, as experiments.open_qa.retrieve writes them.'
    )
  passages = [_read_passages(config, one) for one in sets]
  examples = draw_examples(config)
  trained = in_context_evaluate.load(config, workdir)
  rows, root = [], pathlib.Path(workdir)
  for one, read in zip(sets, passages, strict=True):
    closed = None
    for mode, given in (('off', [()] * len(read)), ('on', read)):
      name = f'{one.name} {mode}'
      answers = answer(trained, config, examples, one.questions, given, name)
      values = score(one, answers)
      rows.append(_row(one, mode, values, closed))
      closed = values
      file = scoring.predictions_name(f'{one.name}:{mode}')
      _write_predictions(root / file, one.questions, answers)
  content = {
    'step': trained.step,
    'examples': examples,
    'rows': rows,
    'settings': json.loads(config.answering.to_json()),
  }
  path = reports.write_json(root / FILE, content)
  reports.print_shares(rows)
  logging.info('Written to %s, the predictions beside it.', path)


if __name__ == '__main__':
  command.main(run, settings_lib.Settings, writes=FILE)
