# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Time the building of a REALM index and its refresh during training.

  python -m experiments.benchmarks.refresh --config=configs/<name>.py \
    --config.data_dir=DATA --workdir=DIR [--steps=60]

On prepared data (experiments.realm.prepare): the time from a snapshot of
parameters to a published index of all blocks; and with --steps, training
throughput end to end under each schedule of refreshing. Writes
DIR/refresh.json.
"""

import pathlib
import shutil
import time

from absl import flags
import ml_collections
import numpy as np

from experiments.engine import command, metric_writer, reports
from experiments.realm import (
  settings as settings_lib,
  task as realm_task,
  train as realm_train,
)
from realm_jax.data import examples, folder as realm_data
from realm_jax.serving import index_builder

_LOG_EVERY = 5


def measure_publication(
  config: ml_collections.ConfigDict, root: pathlib.Path
) -> dict[str, float]:
  """Return the seconds from a snapshot of parameters to the published index.

  Returns:
    blocks, their mean_tokens (of a sample), sec, and blocks_per_sec.
  """
  data = realm_data.DataFolder.of(config, root)
  trained = realm_task.untrained(config, data)
  params = index_builder.snapshot(trained.params)
  blocks = data.blocks
  some = np.linspace(0, blocks.num_blocks - 1, 2000).astype(np.int64)
  rows = examples.block_id_rows(trained.layout, blocks, some)
  folder = root / 'publication'
  shutil.rmtree(folder, ignore_errors=True)  # left by a killed run
  builder = index_builder.make_builder(config, data, folder)
  start = time.monotonic()
  builder.build(0, params)
  took = time.monotonic() - start
  shutil.rmtree(folder)
  return {
    'blocks': blocks.num_blocks,
    'mean_tokens': float(np.mean([len(row) for row in rows])),
    'sec': took,
    'blocks_per_sec': blocks.num_blocks / took,
  }


def measure_schedules(
  config: ml_collections.ConfigDict, root: pathlib.Path, num_steps: int
) -> dict[str, dict[str, float]]:
  """Measure training throughput, end to end, under each refresh schedule.

  Args:
    num_steps: steps of each run; two refreshes divide them into thirds.

  Returns:
    schedule -> steps_per_sec without the first steps, which include
    compilation; oldest, the greatest index_age_steps; data_wait_share.
  """
  found = {}
  for schedule in ('frozen', 'async', 'sync'):
    changed = command.changed(
      config,
      num_steps=num_steps,
      log_every=_LOG_EVERY,
      eval_every=num_steps,  # an evaluation interrupts the clock
      eval_batches=0,
      evaluate={'during_training': False},
      checkpoint_every=num_steps,
      refresh={'schedule': schedule, 'every': num_steps // 3 + 1},
    )
    folder = root / schedule
    shutil.rmtree(folder, ignore_errors=True)
    realm_train.run(changed, str(folder))
    rows = [row for row in metric_writer.read(folder) if 'steps_per_sec' in row]
    shutil.rmtree(folder)
    rows = rows[1:]
    took = sum(_LOG_EVERY / row['steps_per_sec'] for row in rows)
    waited = [row['data_wait_share'] for row in rows]
    found[schedule] = {
      'steps_per_sec': _LOG_EVERY * len(rows) / took,
      'oldest': max(row['index_age_steps'] for row in rows),
      'data_wait_share': float(np.mean(waited)),
    }
  return found


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Measure and print."""
  steps = flags.FLAGS.steps
  if steps and (steps < 3 * _LOG_EVERY or steps % _LOG_EVERY):
    raise ValueError(
      f'--steps={steps}: expected a multiple of {_LOG_EVERY}, at least '
      f'{3 * _LOG_EVERY}.'
    )
  root = pathlib.Path(workdir)
  root.mkdir(parents=True, exist_ok=True)
  config = command.changed(
    config, data_dir=config.data_dir or str(root / 'data')
  )
  result = {'publication': measure_publication(config, root)}
  if steps:
    result |= measure_schedules(config, root, steps)
  rows = [
    (what, measure, f'{value:,.4g}')
    for what, values in result.items()
    for measure, value in values.items()
  ]
  reports.print_table(('what', 'measure', 'value'), rows)
  reports.write_json(root / 'refresh.json', result)


def define_flags() -> None:
  """Define --steps."""
  flags.DEFINE_integer('steps', 0, 'Steps of a run under each schedule.')


if __name__ == '__main__':
  command.main(
    run,
    settings_lib.Settings,
    define_flags,
    writes='refresh.json',
  )
