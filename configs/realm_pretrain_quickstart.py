# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""REALM on the packaged vital articles of Wikipedia, from all-MiniLM-L6-v2.

Paper: Guu et al. 2020. Two CPU cores, nine minutes with `make quickstart`, or stage by
stage from experiments.prepare on; expected figures: docs/results/realm.md.
"""

from experiments.engine import configs
from experiments.realm import config as config_lib


def get_config(arg: str = 'base') -> configs.Config:
  c = configs.of(config_lib.Config)
  c.corpus.max_documents = 1200
  c.valid_fraction = 0.1
  c.blocks.max_length = 64
  c.layout.query_length = 48
  c.layout.num_candidates = 4

  config_lib.start_from_minilm(c)

  c.refresh.every = 50
  c.optimizer.name = 'adamw'  # BERT's Adam starts with too long steps
  c.optimizer.b2 = 0.98
  c.optimizer.learning_rate = 2e-4
  c.optimizer.warmup_steps = 30
  c.optimizer.accumulate_steps = 4  # one example at a time: caches hold it
  c.optimizer.part_scales = {'embedder': 0.1}  # it retrieves well already

  c.batch_size = 4
  c.num_steps = 100
  c.eval_every = c.checkpoint_every = 50
  c.eval_batches = 16
  config_lib.set_variant(c, arg)
  return c
