# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""ORQA on Simple English Wikipedia's first thousand documents; two CPU cores.

The small baseline of REALM's Table 1, on the blocks of realm_pretrain_small. The
commands of all rows are in docs/results/open_qa.md.
"""

import ml_collections

from experiments.engine import configs
from experiments.open_qa import config as config_lib


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Return the configuration; `config_lib.set_variant` lists the arguments."""
  c = configs.of(config_lib.Config)
  c.corpus.kind = 'jsonl'
  c.corpus.max_documents = 1000
  c.blocks.max_length = 64
  c.layout.query_length = 32
  c.lookup.question_length = 32
  c.lookup.row_length = 88

  # The identity keeps the knowledge of all-MiniLM-L6-v2; 0.2 gives scores of a few
  # nats; 1 would give one block all the probability.
  c.model.pooling = 'mean'
  c.model.projection_size = 384
  c.model.projection_init = 'identity'
  c.model.projection_norm_scale = 0.2
  c.model.projection_dropout_rate = 0.0
  for bert in (c.embedder, c.encoder):
    bert.checkpoint = 'minilm'
    bert.dropout_rate = 0.0  # one short pass gives nothing to overfit
    bert.attention_dropout_rate = 0.0

  # BERT's Adam has no bias correction: its first steps are thrice as long, which a
  # run of thousands forgets and one of hundreds does not.
  c.optimizer.name = 'adamw'
  c.optimizer.b2 = 0.98
  c.optimizer.learning_rate = 2e-4
  c.optimizer.warmup_steps = 20
  c.optimizer.accumulate_steps = 4
  # all-MiniLM-L6-v2 retrieves well, and must not lose it at once.
  c.optimizer.part_scales = {'embedder': 0.05}

  c.batch_size = 16
  c.num_steps = 200
  c.eval_every = 100
  c.eval_batches = 8
  c.checkpoint_every = 100
  config_lib.set_variant(c, arg)
  return c
