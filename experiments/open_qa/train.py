# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes REALM or ORQA on questions: retriever and reader together.

  python -m experiments.open_qa.train --config=configs/open_qa_<name>.py[:arg] \
    --config.realm_from=REALM --config.questions.train="('webquestions:train',)" \
    --workdir=DIR

Prepares the data in <workdir>/data, unless --config.data_dir names some. Run again after a kill, it continues from the
last checkpoint bit for bit.
"""

from collections.abc import Callable
import functools

from absl import logging
import jax
import ml_collections

from experiments.engine import command
from experiments.engine import loop
from experiments.engine import tasks
from experiments.open_qa import task as qa_task
from experiments.realm import prepare as realm_prepare
from experiments.realm import refresh_worker as realm_refresh
from experiments.realm import task as realm_task
from realm_jax.data import folder as realm_data
from retrieval.questions import question_sets


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Trains until `config.num_steps`."""
  question_sets.check_questions(config)
  train(config, workdir, qa_task.make_task)


def train(
  config: ml_collections.ConfigDict,
  workdir: str,
  make_task: Callable[..., tasks.Task],
) -> None:
  """Prepares the data where that is still to do, and trains.

  Args:
    config: of the experiment.
    workdir: where everything goes.
    make_task: as `qa_task.make_task`.
  """
  data = realm_data.DataFolder.of(config, workdir)
  if not config.data_dir:
    realm_prepare.run(config, workdir)
  config = qa_task.freeze(config)
  start_builder = functools.partial(
    realm_refresh.start_child, config, str(data.root), workdir
  )
  builders = realm_task.builder_devices(config)
  devices = [d for d in jax.devices() if d not in builders]
  task = make_task(
    config, data, workdir, devices=devices, start_builder=start_builder
  )
  logging.info('Training on %s, writing to %s.', data.root, workdir)
  loop.train(task, config, workdir, devices=devices)


if __name__ == '__main__':
  command.main(run, computes=True)
