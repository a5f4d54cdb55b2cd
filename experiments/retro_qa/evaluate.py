# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Measure exact match of a RETRO or FiD that answers, with and without passages.

  python -m experiments.retro_qa.evaluate --config=configs/retro_qa.py \
    --config.evaluate.questions="('webquestions:test=test.json',)" --workdir=DIR

Answers are written greedily (Borgeaud et al. 2022, section 4.3). A RETRO answers
twice, with its passages and without (RETRO[OFF]), and so does a FiD, whose encoder
then reads the question alone; a baseline is the closed-book model. Writes
<workdir>/retro_qa.json, or fid_qa.json for a FiD and its closed-book twin, and
predictions_<set>_<split>_<on|off|baseline>.jsonl for experiments.open_qa.score.
"""

from collections.abc import Sequence
import dataclasses
import json
import pathlib
from typing import Any

from absl import logging
import ml_collections
import numpy as np

from experiments.engine import command, progress, reports
from experiments.retro import settings as settings_lib
from experiments.retro_qa import data as retro_qa_data, task as retro_qa_task
from retrieval.questions import (
  bootstrap,
  question_sets,
  questions as questions_lib,
  scoring,
)
from retro_jax.decoding import decode, drawing
from retro_jax.trained import language_model, loading

FILE = 'retro_qa.json'
FID_FILE = 'fid_qa.json'


def answer(
  trained: loading.TrainedRetro,
  questions: Sequence[questions_lib.Question],
  passages: Sequence[retro_qa_data.Passages],
  *,
  batch_size: int = 16,
  name: str = 'questions',
) -> list[str]:
  """Write an answer to each question, greedily.

  Returns:
    The answers, '' where nothing was written.
  """
  tokenizer = trained.data.tokenizer
  writer = retro_qa_data.writer(trained.config, tokenizer, any(passages))
  layout = writer.layout
  sampling = drawing.SamplingConfig(
    max_new_tokens=layout.answer_length,
    temperature=0.0,
    num_neighbors=layout.num_neighbors,
    align_prompt=True,
    **loading.special_ids(tokenizer),
  )
  prompts = [
    writer.prompt_to_continue(question.question, read)
    for question, read in zip(questions, passages, strict=True)
  ]
  found, batch_size = [], min(batch_size, len(prompts) or 1)
  with progress.bar(name, 'questions') as update:
    for start in range(0, len(prompts), batch_size):
      part = prompts[start : start + batch_size]
      # The last batch is as large as the others: nothing is compiled for it.
      padded = part + part[-1:] * (batch_size - len(part))
      written = decode.sample(trained.model, trained.params, padded, sampling)
      found += [_text(tokenizer, x) for x in written[: len(part)]]
      update(len(found), len(prompts))
  return found


def _text(tokenizer, sample) -> str:
  kept = [t for t in sample.new_tokens.tolist() if t != tokenizer.eos_id]
  return ' '.join(tokenizer.decode(np.asarray(kept, np.int32)).split())


def measure(
  questions: question_sets.QuestionSet, answers: Sequence[str], mode: str
) -> dict[str, Any]:
  """Score answers by the set's own rule.

  Returns:
    name -> {mean, low, high}, as shares; exact_match in percent, for
    experiments.tables.tables.
  """
  values: dict[str, list[float]] = {}
  for question, text in zip(questions.questions, answers, strict=True):
    for name, value in questions.score(text, question).items():
      values.setdefault(name, []).append(value)
  values['answered'] = [float(bool(text)) for text in answers]
  shares = {
    name: dataclasses.asdict(bootstrap.bootstrap(np.asarray(x)))
    for name, x in values.items()
  }
  return {
    'name': 'baseline' if mode == 'baseline' else f'{questions.name} {mode}',
    'dataset': f'{questions.name}, {mode}',
    'set': questions.name,
    'questions': len(answers),
    'retrieval': 'on' if mode == 'on' else 'off',
    'exact_match': 100 * shares['official_exact_match']['mean'],
    **shares,
  }


def _write_predictions(path, questions, answers) -> None:
  predictions = (
    scoring.Prediction(
      question=question.question, prediction=text, fields={'id': question.id}
    )
    for question, text in zip(questions, answers, strict=True)
  )
  scoring.write_predictions(path, predictions)


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Answer every set in every mode, print the table and write the files."""
  settings = config.evaluate
  question_sets.require_sets(settings.questions, 'evaluate.questions')
  sets = question_sets.load_sets(
    settings.questions,
    settings.max_questions,
    config.questions.allow_other_counts,
  )
  source = settings.workdir or workdir
  trained = language_model.load(source, config.data_dir, step=settings.step)
  if 'qa' not in trained.config:
    raise ValueError(
      f'{source}: was not fine-tuned on questions; expected a run of '
      'experiments.retro_qa.train.'
    )
  files = tuple(config.qa.passages)
  if trained.config.qa.passages and not files:
    logging.warning(
      'Fine-tuned on the passages of %s, evaluated on the nearest chunks of its '
      'own datastore; --config.qa.passages names others.',
      ', '.join(trained.config.qa.passages),
    )
  with trained.config.unlocked():
    settings_lib.take_models(trained.config, config)
    trained.config.qa.passages = files
  fid = retro_qa_data.is_fid(trained.config)
  open_book = retro_qa_data.reader(trained.config) != 'closed_book'
  modes = ['off' if trained.config.retrieval and open_book else 'baseline']
  if retro_qa_data.reads_passages(trained.config):
    modes.insert(0, 'on')
  folder = pathlib.Path(workdir) / retro_qa_task.PASSAGES
  rows = []
  for questions in sets:
    for mode in modes:
      asked = questions.questions
      passages = [()] * len(asked)
      if mode == 'on':
        passages = retro_qa_data.passages(
          trained, trained.config, asked, folder
        )
      answers = answer(
        trained,
        asked,
        passages,
        batch_size=settings.batch_size,
        name=f'{questions.name} {mode}',
      )
      rows.append(measure(questions, answers, mode))
      name = scoring.predictions_name(f'{questions.name}:{mode}')
      _write_predictions(pathlib.Path(workdir) / name, asked, answers)
  content = {
    'step': trained.step,
    'passages': files,
    'rows': rows,
    'settings': json.loads(settings.to_json()),
  }
  file = FID_FILE if fid else FILE
  path = reports.write_json(pathlib.Path(workdir) / file, content)
  reports.print_shares(rows)
  logging.info('Written to %s, the predictions beside it.', path)


if __name__ == '__main__':
  command.main(run, settings_lib.Settings, writes=FILE)
