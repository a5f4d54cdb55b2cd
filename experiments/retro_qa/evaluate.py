# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Measure exact match of a RETRO or FiD that answers, with and without passages.

  python -m experiments.evaluate --config=configs/retro_qa.py \
    --config.evaluate.questions="('webquestions:test=test.json',)" --workdir=DIR

Answers are written greedily (Borgeaud et al. 2022, section 4.3). A RETRO answers
twice, with its passages and without (RETRO[OFF]), and so does a FiD, whose encoder
then reads the question alone; a baseline is the closed-book model. Writes
<workdir>/retro_qa.json, or fid_qa.json for a FiD and its closed-book twin, and
predictions_<set>_<split>_<on|off|baseline>.jsonl for experiments.score.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import pathlib
from typing import Any

from absl import logging
import numpy as np

from experiments.engine import configs, evaluations, progress, reports
from experiments.retro_qa import data as retro_qa_data, task as retro_qa_task
from experiments.retro_qa.config import Config
from retrieval import settings
from retrieval.questions import (
  question_files,
  question_sets,
  ranking,
  scoring,
)
from retro_jax.decoding import decode, drawing
from retro_jax.trained import language_model, loading

FILE = 'retro_qa.json'
FID_FILE = 'fid_qa.json'
_COMPARED = ('official_exact_match', 'f1')  # with closed book


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluate:
  """Questions that are answered."""

  workdir: str = ''  # '': --workdir
  step: str = ''  # a number, 'best' (by best_metric), or '' for the newest
  questions: tuple[str, ...] = ()  # sets as in config.questions
  max_questions: settings.Count = 0  # of each set; 0: all
  batch_size: settings.Size = 16


def answer(
  trained: loading.TrainedRetro,
  questions: Sequence[question_files.Question],
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
  answers, batch_size = [], min(batch_size, len(prompts) or 1)
  with progress.bar(name, 'questions') as update:
    for start in range(0, len(prompts), batch_size):
      part = prompts[start : start + batch_size]
      # The last batch is as large as the others: nothing is compiled for it.
      padded = part + part[-1:] * (batch_size - len(part))
      written = decode.sample(
        trained.model,
        trained.params,
        padded,
        sampling,
        detokenize=tokenizer.decode,
      )
      answers += [_text(tokenizer, x) for x in written[: len(part)]]
      update(len(answers), len(prompts))
  return answers


def _text(tokenizer, sample) -> str:
  tokens = [t for t in sample.new_tokens.tolist() if t != tokenizer.eos_id]
  return ' '.join(tokenizer.decode(np.asarray(tokens, np.int32)).split())


def evaluate_sets(
  workdir: str,
  file: str,
  sets: Sequence[question_sets.QuestionSet],
  modes: Sequence[str],
  answer: Callable[[question_sets.QuestionSet, str], list[str]],
  content: Mapping[str, Any],
) -> None:
  """Answer every set in every mode, print the table and write the files.

  Args:
    file: name of the file of results, `content` and rows.
    modes: of on, off and baseline; 'on' after 'off' also shows the difference.
    answer: set, mode -> an answer to each question.
  """
  folder, rows = pathlib.Path(workdir), []
  for questions in sets:
    closed = None
    for mode in modes:
      answers = answer(questions, mode)
      values = measures(questions, answers)
      rows.append(_row(questions, mode, values, closed))
      closed = values if mode == 'off' else None
      name = scoring.predictions_name(f'{questions.name}:{mode}')
      predictions = (
        {'question': question.question, 'prediction': text, 'id': question.id}
        for question, text in zip(questions.questions, answers, strict=True)
      )
      scoring.write_predictions(folder / name, predictions)
  path = evaluations.write(folder / file, rows, **content)
  reports.print_shares([row.facts for row in rows])
  logging.info('Written to %s, the predictions beside it.', path)


def measures(
  questions: question_sets.QuestionSet, answers: Sequence[str]
) -> ranking.Values:
  """Measures of each answer by the set's rule: name -> [n]."""
  rows = [
    questions.score(text, question)
    for question, text in zip(questions.questions, answers, strict=True)
  ]
  values = {name: np.array([row[name] for row in rows]) for name in rows[0]}
  return values | {'answered': np.array([float(bool(x)) for x in answers])}


def _row(questions, mode, values, closed) -> evaluations.Row:
  """Return a mode of a set; facts are name -> {mean, low, high}, as shares.

  Args:
    values: of `measures`; exact_match is in percent, for experiments.tables.
    closed: of the closed-book twin, for the differences to it.
  """
  shares = ranking.intervals(values)
  if closed is not None:
    compared = {name: values[name] for name in _COMPARED if name in values}
    gains = ranking.differences(compared, closed)
    shares |= {f'{name}, less off': x for name, x in gains.items()}
  name = 'baseline' if mode == 'baseline' else f'{questions.name} {mode}'
  facts = {
    'dataset': f'{questions.name}, {mode}',
    'set': questions.name,
    'questions': len(questions.questions),
    'retrieval': 'on' if mode == 'on' else 'off',
    'exact_match': 100 * shares['official_exact_match'].mean,
    **{name: dataclasses.asdict(x) for name, x in shares.items()},
  }
  return evaluations.Row(name=name, values=values, facts=facts)


def evaluate(config: Config, workdir: str, settings: Evaluate) -> None:
  """Answer every set in every mode, print the table and write the files."""
  sets = question_sets.load_sets(
    settings.questions,
    settings.max_questions,
    config.questions.allow_other_counts,
  )
  source, read = settings.workdir or workdir, config.qa.passages
  trained = language_model.load(
    source, config.data_dir, step=settings.step, config_type=Config
  )
  if (learned := trained.config.qa.passages) and not read:
    logging.warning(
      'Fine-tuned on the passages of %s, evaluated on the nearest chunks of its '
      "run's datastore; --config.qa.passages names others.",
      ', '.join(learned),
    )
  run = configs.replaced(trained.config, **{'qa.passages': read})
  run = loading.merged(run, config)
  trained = dataclasses.replace(trained, config=run)
  folder = pathlib.Path(workdir) / retro_qa_task.PASSAGES
  open_book = run.retrieval and run.qa.reader != 'closed_book'
  modes = ['off' if open_book else 'baseline']
  if run.reads_passages:
    modes.insert(0, 'on')

  def write(questions, mode):
    asked = questions.questions
    passages = [()] * len(asked)
    if mode == 'on':
      passages = retro_qa_data.passages(trained, run, asked, folder)
    name, size = f'{questions.name} {mode}', settings.batch_size
    return answer(trained, asked, passages, batch_size=size, name=name)

  content = {
    'step': trained.step,
    'passages': config.qa.passages,
    'settings': dataclasses.asdict(settings),
  }
  file = FID_FILE if run.qa.is_fid else FILE
  evaluate_sets(workdir, file, sets, modes, write, content)
