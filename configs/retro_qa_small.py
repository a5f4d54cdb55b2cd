# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A small RETRO that answers questions; two CPU cores.

Starts from the runs of retro_pretrain_small:

  python -m experiments.retro.qa_train --config=configs/retro_qa_small.py \
    --config.retro_from=runs/simplewiki/retro \
    --config.questions.train="('webquestions:train=train.json',)" \
    --config.questions.dev="('webquestions:dev=train.json',)" \
    --workdir=runs/simplewiki/qa
  python -m experiments.retro.qa_evaluate --config=configs/retro_qa_small.py \
    --config.evaluate.questions="('webquestions:test=test.json',)" \
    --workdir=runs/simplewiki/qa

With --config.retro_from=runs/simplewiki/baseline it is the closed-book model.
"""

import ml_collections

from configs import retro_qa_base


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Returns the configuration; see retro_qa_base for `arg`."""
  config = retro_qa_base.get_config(arg)
  config.qa.num_passages = 5
  config.batch_size = 16
  config.optimizer.learning_rate = 3e-4
  config.optimizer.warmup_steps = 50
  config.num_steps = 600
  config.log_every = 20
  config.eval_every = 200
  config.eval_batches = 10
  config.checkpoint_every = 200
  return retro_qa_base.finish(config, arg)
