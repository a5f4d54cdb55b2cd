# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""REALM on the packaged vital articles of Wikipedia, from all-MiniLM-L6-v2.

Paper: Guu et al. 2020. Two CPU cores, nine minutes.

  make quickstart

or stage by stage:

  python -m experiments.realm.prepare \
    --config=configs/realm_pretrain_quickstart.py --workdir=runs/quickstart/realm
"""

import ml_collections

from configs import realm_base


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Returns the configuration; see realm_base for `arg`."""
  config = realm_base.get_config(arg)
  config.corpus.max_documents = 1200
  config.blocks.max_length = 64
  config.valid_fraction = 0.1
  config.layout.query_length = 48
  config.layout.num_candidates = 4
  config.refresh.every = 50
  for bert in (config.embedder, config.encoder):
    bert.dropout_rate = 0.0  # one short pass: nothing to overfit
    bert.attention_dropout_rate = 0.0
  # BERT's Adam has no bias correction: its first steps are thrice as long, which
  # a run of thousands forgets and one of hundreds does not.
  config.optimizer.name = 'adamw'
  config.optimizer.b2 = 0.98
  config.optimizer.learning_rate = 2e-4
  # all-MiniLM-L6-v2 retrieves well; what it knows is not to be lost at once.
  config.optimizer.part_scales = {'embedder': 0.1}
  config.optimizer.warmup_steps = 30
  config.batch_size = 4
  config.optimizer.accumulate_steps = 4  # one at a time: caches hold it
  config.num_steps = 100
  config.eval_every = 50
  config.checkpoint_every = 50
  return realm_base.finish(config, arg)
