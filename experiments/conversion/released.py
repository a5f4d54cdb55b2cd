# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Measure the released REALM on open questions, beside its paper's figures.

  python -m experiments.conversion.released --workdir=DIR

Guu et al. 2020, Table 1 (X CC-News): for NQ-open and for WebQuestions this fetches the
fine-tuned model, the published blocks and their vectors from the Hugging Face Hub,
converts them, answers the test questions and prints exact match (DIR/released.json). Each step is written to
DIR, and the same command continues. --config.evaluate.questions names one set alone or
files of questions, --config.evaluate.max_questions the first of each set.
docs/convert.md tells what it needs.
"""

import dataclasses
import pathlib

from experiments import convert
from experiments.engine import command, configs, reports
from experiments.open_qa import config as config_lib, evaluate as evaluate_lib
from retrieval.questions import question_sets
from retrieval.store import manifests

FILE = 'released.json'


@dataclasses.dataclass(frozen=True)
class Released:
  """A model that was fine-tuned on a data set."""

  source: str  # on the Hub
  paper: float  # exact match on the test set, percent


MODELS = {
  'nq_open': Released('hf://google/realm-orqa-nq-openqa', 40.4),
  'webquestions': Released('hf://google/realm-orqa-wq-openqa', 40.7),
}


def measure(
  config: config_lib.Config, workdir: str, options: evaluate_lib.Evaluate
) -> None:
  """Convert and evaluate a model for each set of `options`; print exact match.

  DIR/data holds the blocks, which are the same for both models; DIR/<data set> holds a
  model with its index.

  Raises:
    ValueError: for questions of a data set that no released model is for.
  """
  specs = options.questions or tuple(f'{name}:test' for name in MODELS)
  names = [spec.partition(':')[0] for spec in specs]
  if others := {*names} - {*MODELS}:
    raise ValueError(
      f'evaluate.questions: {sorted(others)}, expected sets of {sorted(MODELS)}.'
    )
  allow = config.questions.allow_other_counts
  question_sets.load_sets(specs, 1, allow)  # before hours of work
  root, rows = pathlib.Path(workdir), []
  config = configs.replaced(config, data_dir=str((root / 'data').resolve()))
  for name, spec in zip(names, specs, strict=True):
    model, run = MODELS[name], str(root / name)
    convert.convert(convert.Options(paths=(model.source,)), config, run)
    evaluate_lib.evaluate(
      config, run, dataclasses.replace(options, questions=(spec,))
    )
    path = root / name / evaluate_lib.FILE
    [row] = manifests.read_object(path)['rows']
    rows.append(row | {'paper': model.paper})
  reports.write_json(root / FILE, {'rows': rows})
  heads = 'set', 'questions', 'exact match, %', 'Guu et al. 2020, %'
  shown = [
    (
      row['dataset'],
      f'{row["questions"]:,}',
      reports.share(row['official_exact_match']),
      f'{row["paper"]}',
    )
    for row in rows
  ]
  reports.print_table(heads, shown)


if __name__ == '__main__':
  command.main(
    measure,
    config_lib.Config,
    section=evaluate_lib.Evaluate,
    default_config=str(convert.CONFIG),
    writes=FILE,
  )
