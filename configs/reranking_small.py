# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A cross-encoder of all-MiniLM-L6-v2's size that re-ranks; two CPU cores.

Nogueira and Cho 2019 (arXiv 1901.04085); loss of Gao et al. 2021 (arXiv
2101.08751). Argument: base (questions and blocks) or chunks (RETRO's chunks and their
neighbors); test and chunks_test run on a CPU in seconds.
"""

from experiments.engine import configs
from experiments.reranking import config as config_lib


def get_config(arg: str = 'base') -> configs.Config:
  configs.check_arg(arg, ('base', 'chunks', 'test', 'chunks_test'))
  c = configs.of(config_lib.Config)
  c.examples.num_negatives = 3
  c.model.d_model = 384
  c.model.d_ff = 1536
  c.model.num_layers = 6
  c.model.dropout_rate = 0.0  # one short pass gives nothing to overfit
  c.model.attention_dropout_rate = 0.0

  c.optimizer.schedule = 'linear'
  c.optimizer.learning_rate = 5e-5
  c.optimizer.warmup_steps = 20
  c.optimizer.initial_learning_rate = 0.0
  c.optimizer.final_fraction = 0.0
  c.optimizer.weight_decay = 0.01
  c.optimizer.b2 = 0.98
  c.batch_size = 8
  c.num_steps = 200
  c.eval_every = c.checkpoint_every = 50
  c.eval_batches = 8
  c.update(best_metric='valid/mrr', best_mode='max')
  if arg.startswith('chunks'):
    c.examples.kind = 'chunks'
    c.layout.update(query_length=48, row_length=144)
  if arg.endswith('test'):
    c.start = ''
    c.model.update(
      d_model=16, d_ff=32, num_heads=2, num_layers=1, max_length=64
    )
    c.layout.update(query_length=12, row_length=48)
    c.examples.update(depth=10, num_negatives=2)
    c.optimizer.update(learning_rate=1e-3, warmup_steps=2)
    c.batch_size = c.num_steps = 4
    c.log_every = c.eval_batches = 1
    c.eval_every = c.checkpoint_every = 2
  return c
