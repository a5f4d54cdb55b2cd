# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A REALM whose retriever has much to learn; two CPU cores.

Paper: Guu et al. 2020, Table 2. The retriever is the first layer of all-MiniLM-L6-v2
with a new projection of [CLS], so that it finds nothing before ICT, unlike the sentence
encoder of realm_pretrain_small. Arguments of get_config are those of config_lib.set_variant. On one core ICT takes two minutes, a REALM
ten. Commands and figures: docs/results/realm.md.
"""

import ml_collections

from experiments.engine import configs
from experiments.realm import config as config_lib


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Return the configuration; `config_lib.set_variant` lists the arguments."""
  c = configs.of(config_lib.Config)
  c.corpus.kind = 'jsonl'
  c.corpus.max_documents = 1000
  c.valid_fraction = 0.05
  c.blocks.max_length = 64
  c.layout.query_length = 48
  c.layout.num_candidates = 4

  c.model.pooling = 'cls'
  c.model.projection_size = 128
  c.model.projection_init = 'normal'
  # vectors as long as those of 384 values at 0.2
  c.model.projection_norm_scale = 0.35
  c.model.projection_dropout_rate = 0.0
  for bert in (c.embedder, c.encoder):
    bert.checkpoint = 'minilm'
    bert.dropout_rate = 0.0  # one short pass gives nothing to overfit
    bert.attention_dropout_rate = 0.0
  c.embedder.num_layers = 1

  c.warm_start.ict.num_steps = 400
  c.warm_start.ict.learning_rate = 5e-4
  c.warm_start.mlm.num_steps = 800
  c.refresh.every = 80
  # BERT's Adam has no bias correction: its first steps are thrice as long, which a
  # run of thousands forgets and one of hundreds does not.
  c.optimizer.name = 'adamw'
  c.optimizer.b2 = 0.98
  c.optimizer.learning_rate = 2e-4
  c.optimizer.warmup_steps = 30
  # all-MiniLM-L6-v2 retrieves well, and must not lose it at once.
  c.optimizer.part_scales = {'embedder': 0.1}

  c.batch_size = 4
  c.num_steps = 400
  c.eval_every = 100
  c.eval_batches = 40
  c.checkpoint_every = 100
  config_lib.set_variant(c, arg)
  return c
