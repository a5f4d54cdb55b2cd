# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""ORQA on Simple English Wikipedia's first thousand documents; two CPU cores.

The small baseline of REALM's Table 1, on the blocks of realm_pretrain_small; its rows:

  python -m experiments.tables.realm_table1 --config=configs/open_qa_small.py --help
"""

import ml_collections

from configs import open_qa_base


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Returns the configuration; see open_qa_base for `arg`."""
  config = open_qa_base.get_config(arg)
  config.corpus.kind = 'jsonl'
  config.corpus.max_documents = 1000
  config.blocks.max_length = 64
  config.layout.query_length = 32
  config.lookup.question_length = 32
  config.lookup.row_length = 88
  for bert in (config.embedder, config.encoder):
    bert.dropout_rate = 0.0
    bert.attention_dropout_rate = 0.0
  config.optimizer.name = 'adamw'  # see realm_pretrain_quickstart.py
  config.optimizer.b2 = 0.98
  config.optimizer.learning_rate = 2e-4
  # all-MiniLM-L6-v2 retrieves well; what it knows is not to be lost at once.
  config.optimizer.part_scales = {'embedder': 0.05}
  config.optimizer.warmup_steps = 20
  config.batch_size = 16
  config.optimizer.accumulate_steps = 4
  config.num_steps = 200
  config.eval_every = 100
  config.eval_batches = 8
  config.checkpoint_every = 100
  config.warm_start.dpr.num_steps = 150
  return open_qa_base.finish(config, arg)
