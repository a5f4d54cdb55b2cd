# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes a RETRO to answer questions (Borgeaud et al. 2022, section 4.3).

  python -m experiments.retro.qa_train --config=configs/retro_qa_<name>.py \
    --config.retro_from=RETRO \
    --config.questions.train="('webquestions:train=train.json',)" --workdir=DIR

Passages are what the run's own datastore holds nearest to the question, or come from
any retriever: --config.qa.passages="('results.json',)" in DPR's form. Of a baseline
without retrieval the same command makes the closed-book model. Run again after a
kill, it continues from the last checkpoint bit for bit.
"""

from absl import logging
import ml_collections

from experiments.engine import command
from experiments.engine import loop
from experiments.retro import qa_task as retro_qa_task
from experiments.retro import task as retro_task
from retrieval.questions import question_sets


def run(config: ml_collections.ConfigDict, workdir: str) -> None:
  """Trains until `config.num_steps`."""
  config = retro_qa_task.adopt(config)
  question_sets.check_questions(config)
  trained = retro_task.load(config.retro_from, config.data_dir)
  trained.config.embedder = config.embedder
  task = retro_qa_task.make_task(config, trained, workdir)
  logging.info('Fine-tuning %s, writing to %s.', config.retro_from, workdir)
  loop.train(task, config, workdir)


if __name__ == '__main__':
  command.main(run, computes=True)
