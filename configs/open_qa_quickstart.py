# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Questions answered from the packaged vital articles of Wikipedia; two CPU cores.

The retriever starts from all-MiniLM-L6-v2, the reader from the packaged one; the
questions are Red-Trivia's.

  python -m experiments.open_qa.train --config=configs/open_qa_quickstart.py \
    --workdir=runs/qa
  python -m experiments.open_qa.ask --workdir=runs/qa \
    --question='What is the capital of Mongolia?'

Eleven minutes on two cores beside other work, three of them for the vectors of
12,908 blocks. Expected: exact answers to 28.5 % of the 200 test questions
(experiments.open_qa.evaluate), against 15.0 % by the packaged reader and BM25; the
five blocks read hold an answer for 38.0 %.
"""

import ml_collections

from configs.bases import open_qa_base


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Return the configuration; see open_qa_base for `arg`."""
  config = open_qa_base.vital(arg)
  config.encoder_from = '' if arg.endswith('test') else 'packaged'
  config.optimizer.update(
    learning_rate=5e-5,
    accumulate_steps=16,  # blocks without an answer are not read
  )
  config.update(num_steps=100, eval_every=50, checkpoint_every=50)
  return open_qa_base.finish(config, arg)
