# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Compare bits per byte of one RETRO with the neighbors of several data folders.

  python -m experiments.retro.compare_data --config=configs/<name>.py --workdir=RETRO \
    --data=frozen=DATA --data=taught=OTHER_DATA

The folders hold the same documents, with neighbors of different embedders. RETRO
reads each folder's neighbors (--config.evaluate.source, by default the source of its
training) for the first of --config.evaluate.num_neighbors. Prints a table with paired
intervals against the first folder and writes RETRO/compare_data.json.
"""

from collections.abc import Sequence
import dataclasses
import json
import pathlib
from typing import Any

from absl import flags
import ml_collections

from experiments.engine import command, reports
from experiments.retro import (
  evaluate as retro_evaluate,
  settings as settings_lib,
)
from retrieval.questions import bootstrap
from retro_jax.evaluation import evaluate

FILE = 'compare_data.json'


def parse_folders(values: Sequence[str]) -> dict[str, str]:
  """Return the data folder of each name in NAME=DIR.

  Raises:
    ValueError: for a text of another form, a name given twice or no folder.
  """
  folders = {}
  for value in values:
    name, _, folder = value.partition('=')
    there = name and folder and pathlib.Path(folder).is_dir()
    if name in folders or not there:
      raise ValueError(
        f'--data={value}: expected NAME=DIR, a new name and a data folder.'
      )
    folders[name] = folder
  return folders


def measure(
  config: ml_collections.ConfigDict, workdir: str, folders: dict[str, str]
) -> dict[str, retro_evaluate.Result]:
  """Evaluate RETRO on each data folder, and once without retrieval ('off').

  Raises:
    ValueError: for a model that does not retrieve.
  """
  results = {}
  for name, folder in folders.items():
    trained, _ = retro_evaluate.load(
      command.changed(config, data_dir=folder), workdir
    )
    if not trained.model.config.cca_layers:
      raise ValueError(f'{workdir}: a baseline; expected a RETRO.')
    on, off = retro_evaluate.on_and_off(trained, config.evaluate)
    modes = [(name, *on[1:])]
    if not results:
      modes.append(off)
    found = retro_evaluate.evaluate_trained(trained, config, modes)
    results |= dict(zip((name, 'off'), found, strict=False))
  return results


def compare(
  results: dict[str, retro_evaluate.Result], first: str, name: str
) -> bootstrap.Interval | None:
  """Bits per byte of a folder's result minus the first one's; None for itself.

  Raises:
    ValueError: when the folders hold out different documents.
  """
  if name == first:
    return None
  try:
    return evaluate.compare(results[name].evaluation, results[first].evaluation)
  except ValueError as error:
    raise ValueError(f'--data={name} and --data={first}: {error}') from None


def run(
  config: ml_collections.ConfigDict, workdir: str, values: Sequence[str]
) -> dict[str, Any]:
  """Print the table, write the file and return its content.

  Raises:
    ValueError: for folders or a model that do not fit.
  """
  folders = parse_folders(values)
  if 'off' in folders or not folders:
    raise ValueError(
      f"--data names {list(folders)}: expected folders, none of them 'off'."
    )
  source = config.evaluate.workdir or workdir
  results = measure(config, source, folders)
  first = next(iter(folders))
  rows, lines = [], []
  for name, result in results.items():
    difference = compare(results, first, name)
    rows.append(
      result.to_json()
      | {
        'name': name,
        'data': folders.get(name, ''),
        'minus_first': difference and dataclasses.asdict(difference),
      }
    )
    lines.append((name, *retro_evaluate.cells(result.evaluation, difference)))
  one = results[first]
  reports.print_table(
    ('data', 'bits/byte', 'minus first', 'interval', 'token ppl', 'word ppl'),
    lines,
    title=f'{len(one.evaluation.nats):,} held-out documents, k = '
    f'{one.num_neighbors}, step {one.step:,}',
    caption=f'Minus first: bits per byte less those with the data {first!r}; '
    'interval: 95 % of a paired bootstrap over documents.',
  )
  content = {'rows': rows, 'settings': json.loads(config.evaluate.to_json())}
  reports.write_json(pathlib.Path(workdir) / FILE, content)
  return content


def _define_flags() -> None:
  flags.DEFINE_multi_string('data', None, 'NAME=DIR of a data folder.')
  flags.mark_flag_as_required('data')


if __name__ == '__main__':
  command.main(
    lambda config, workdir: run(config, workdir, flags.FLAGS.data) and None,
    settings_lib.Settings,
    _define_flags,
    writes=FILE,
  )
