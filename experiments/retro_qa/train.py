# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tune a RETRO or its baseline on questions.

  python -m experiments.retro_qa.train --config=configs/retro_qa.py \
    --config.retro_from=RUN \
    --config.questions.train="('webquestions:train=train.json',)" --workdir=DIR

RUN is a workdir of experiments.retro.train (Borgeaud et al. 2022, section 4.3).
Passages are the chunks of the run's own datastore nearest to the question, or come
from any retriever: --config.qa.passages="('results.json',)" in DPR's form. A
baseline becomes the closed-book model. configs/fid_qa.py makes a Fusion-in-Decoder of
either. A killed command continues from the last checkpoint, bit for bit, when run
again.
"""

from absl import logging
import ml_collections

from experiments.engine import command, loop
from experiments.retro import settings as settings_lib
from experiments.retro_qa import task as retro_qa_task
from retrieval.store import locks


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Train until `config.num_steps`.

  Raises:
    ValueError: for a config of another task.
  """
  if config.task != 'retro_qa':
    raise ValueError(
      f"config.task {config.task!r}: expected 'retro_qa'; experiments.retro.train "
      "trains 'retro'."
    )
  config, task = retro_qa_task.start(config, workdir)
  logging.info('Training on %s, writing to %s.', config.retro_from, workdir)
  loop.train(task, config, workdir)


if __name__ == '__main__':
  command.main(run, settings_lib.Settings, writes=locks.RUN)
