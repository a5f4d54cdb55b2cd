# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""REALM on the packaged vital articles of Wikipedia, from all-MiniLM-L6-v2.

Paper: Guu et al. 2020. Two CPU cores, nine minutes; expected figures are in
docs/results/realm.md.

  make quickstart

or stage by stage:

  python -m experiments.prepare \
    --config=configs/realm_pretrain_quickstart.py --workdir=runs/quickstart/realm
"""

import ml_collections

from experiments.engine import configs
from experiments.realm import config as config_lib


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Return the configuration; `config_lib.set_variant` lists the arguments."""
  c = configs.of(config_lib.Config)
  c.corpus.kind = 'vital'
  c.corpus.max_documents = 1200
  c.valid_fraction = 0.1
  c.blocks.max_length = 64
  c.layout.query_length = 48
  c.layout.num_candidates = 4

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

  c.refresh.every = 50
  # BERT's Adam has no bias correction: its first steps are thrice as long, which a
  # run of thousands forgets and one of hundreds does not.
  c.optimizer.name = 'adamw'
  c.optimizer.b2 = 0.98
  c.optimizer.learning_rate = 2e-4
  c.optimizer.warmup_steps = 30
  c.optimizer.accumulate_steps = 4  # one example at a time: caches hold it
  # all-MiniLM-L6-v2 retrieves well, and must not lose it at once.
  c.optimizer.part_scales = {'embedder': 0.1}

  c.batch_size = 4
  c.num_steps = 100
  c.eval_every = 50
  c.eval_batches = 16
  c.checkpoint_every = 50
  config_lib.set_variant(c, arg)
  return c
