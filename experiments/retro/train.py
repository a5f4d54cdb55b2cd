# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Train RETRO or its baseline, or fine-tune one of them on questions.

  python -m experiments.retro.train --config=configs/<name>.py[:baseline] \
    --config.data_dir=DATA --workdir=DIR

trains on prepared data (config.task = 'retro'). A config of question answering
(config.task = 'retro_qa'; Borgeaud et al. 2022, section 4.3) fine-tunes a run:

  python -m experiments.retro.train --config=configs/retro_qa.py \
    --config.retro_from=RUN \
    --config.questions.train="('webquestions:train=train.json',)" --workdir=DIR

Passages are the chunks of the run's own datastore nearest to the question, or come
from any retriever: --config.qa.passages="('results.json',)" in DPR's form. A
baseline becomes the closed-book model. configs/fid_qa.py makes a Fusion-in-Decoder of
either. A killed command continues from the last checkpoint, bit for bit, when run
again.
"""

from absl import logging
import ml_collections

from experiments.engine import command, loop
from experiments.retro import (
  qa_task as retro_qa_task,
  settings as settings_lib,
  task as retro_task,
)
from retrieval.store import locks
from retro_jax.data import folder as retro_data


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Train until `config.num_steps`."""
  if config.task == 'retro_qa':
    config, task = retro_qa_task.start(config, workdir)
    source = config.retro_from
  elif config.task == 'retro':
    data = retro_data.DataFolder.of(config, workdir)
    task, source = retro_task.make_task(config, data), data.root
  else:
    raise ValueError(
      f"config.task {config.task!r}: expected 'retro' or 'retro_qa'; other tasks "
      'have train commands in their own rooms.'
    )
  logging.info('Training on %s, writing to %s.', source, workdir)
  loop.train(task, config, workdir)


if __name__ == '__main__':
  command.main(run, settings_lib.Settings, writes=locks.RUN)
