# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""ORQA on Simple English Wikipedia's first thousand documents; two CPU cores.

The small baseline of REALM's Table 1, on the blocks of realm_pretrain_small. The
commands of all rows are in docs/lab-notes/open_qa.md.
"""

from experiments.engine import configs
from experiments.open_qa import config as config_lib
from experiments.realm import config as realm_config


def get_config(arg: str = 'base') -> configs.Config:
  c = configs.of(config_lib.Config)
  c.corpus.kind = 'jsonl'
  c.corpus.wikipedia = True
  c.corpus.max_documents = 1000
  c.blocks.max_length = 64
  c.layout.query_length = 32
  c.lookup.question_length = 32
  c.lookup.row_length = 88

  realm_config.start_from_minilm(c)

  c.optimizer.learning_rate = 2e-4
  c.optimizer.warmup_steps = 20
  c.optimizer.accumulate_steps = 4
  c.optimizer.part_scales = {'embedder': 0.05}  # it retrieves well already

  c.batch_size = 16
  c.num_steps = 200
  c.eval_every = c.checkpoint_every = 100
  c.eval_batches = 8
  config_lib.set_variant(c, arg)
  return c
