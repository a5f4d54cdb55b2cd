# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Explain a prediction of REALM by its documents (Guu et al. 2020, Table 3).

  python -m experiments.explain 'The Eiffel Tower stands in [MASK].'

By default this is the REALM that comes with the package, over the packaged articles of
Wikipedia; --workdir=DIR is a run of task realm. Several texts, each in quotes, are
explained in turn; --text=TEXT, which may repeat, does the same.

Prints the most probable words; for each document it prints p(z | x), p(z | x, y), how
much the document raised the answer's likelihood and what the answer's probability would
be without it. y is the --answer, by default the model's prediction.
"""

import dataclasses
import json

from absl import flags

from experiments.engine import command
from realm_jax.trained import explain, loading, model_configs, packaged


def main(unused_argv: list[str]) -> None:
  """Explain every --text."""
  values = flags.FLAGS
  answers = values.answer or [''] * len(values.text)
  if not values.text or len(answers) != len(values.text):
    raise ValueError(
      f'{len(values.text)} texts and {len(values.answer)} --answer: expected '
      'at least one text, and as many answers or none.'
    )
  workdir = values.workdir
  if workdir == model_configs.PACKAGED:
    workdir = packaged.take()
  trained = loading.load(workdir, values.data_dir, part='realm')
  explained = [
    trained.explain(text, answer, top=values.top)
    for text, answer in zip(values.text, answers, strict=True)
  ]
  if values.json:
    print(json.dumps([dataclasses.asdict(x) for x in explained], indent=1))
    return
  for one in explained:
    print(one)


if __name__ == '__main__':
  flags.DEFINE_multi_string(
    'text',
    [],
    f'Sentence with {explain.MASK}; may repeat, and stand without the flag.',
  )
  flags.DEFINE_multi_string('answer', [], 'Masked words; one for each text.')
  flags.DEFINE_integer('top', 5, 'Words named for each mask.', lower_bound=1)
  flags.DEFINE_bool('json', False, 'Print JSON instead of tables.')
  flags.DEFINE_string('workdir', model_configs.PACKAGED, 'Folder of the run.')
  flags.DEFINE_string('data_dir', '', 'Folder of the data, if they have moved.')
  command.main_of_script(main, text='text')
