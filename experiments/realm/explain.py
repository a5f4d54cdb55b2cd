# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Explain a prediction of REALM by its documents (Guu et al. 2020, Table 3).

  python -m experiments.realm.explain --text='The Eiffel Tower stands in [MASK].'

By default this is the REALM that comes with the package, over the packaged articles of
Wikipedia; --workdir=DIR is a run of experiments.realm.train.

Shows the most probable words, and of every document p(z | x), p(z | x, y), its
retrieval utility and what the answer's probability would be without it. y is the
--answer, or the model's own prediction where none is given. --json prints JSON.
"""

import dataclasses
import json
import os
import pathlib

from absl import flags
import ml_collections
import rich.markup
import rich.table

from experiments.engine import command, progress
from experiments.realm import settings as settings_lib
from realm_jax.serving import explain, packaged, trained_models, views

CONFIG = (
  pathlib.Path(__file__).parents[2] / 'configs/realm_pretrain_quickstart.py'
)


def print_explained(found: explain.Explained) -> None:
  """Print an explanation as a table."""
  console = progress.console()
  console.print(found.text, style='bold', markup=False, highlight=False)
  for line in views.explained_lines(found):
    console.print(f'  {line}', markup=False, highlight=False)
  table = rich.table.Table(*views.EXPLAINED_COLUMNS)
  for row in views.explained_rows(found):
    table.add_row(*map(rich.markup.escape, row))
  console.print(table)


def _load(
  workdir: str | os.PathLike, data_dir: str
) -> trained_models.TrainedRealm:
  """Load a run, or the packaged model."""
  if workdir == packaged.NAME:
    workdir = packaged.take()
  return trained_models.load(workdir, data_dir, part='realm')


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Explain every --text."""
  values = flags.FLAGS
  answers = values.answer or [''] * len(values.text)
  if not values.text or len(answers) != len(values.text):
    raise ValueError(
      f'{len(values.text)} --text and {len(values.answer)} --answer: expected '
      'at least one text, and as many answers or none.'
    )
  trained = _load(workdir, config.data_dir)
  found = [
    trained.explain(text, answer, top=config.explain.top)
    for text, answer in zip(values.text, answers, strict=True)
  ]
  if values.json:
    print(json.dumps([dataclasses.asdict(x) for x in found], indent=1))
    return
  for one in found:
    print_explained(one)


def define_flags() -> None:
  """Define --text, --answer and --json."""
  flags.DEFINE_multi_string(
    'text', [], f'Sentence with {explain.MASK}; may repeat.'
  )
  flags.DEFINE_multi_string('answer', [], 'Masked words; one for each text.')
  flags.DEFINE_bool('json', False, 'Print JSON instead of tables.')


if __name__ == '__main__':
  command.main(
    run,
    settings_lib.Settings,
    define_flags,
    default_config=str(CONFIG),
    default_workdir=packaged.NAME,
  )
