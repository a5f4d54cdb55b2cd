# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A REALM whose retriever has much to learn; two CPU cores.

Paper: Guu et al. 2020, Table 2. The retriever is the first layer of all-MiniLM-L6-v2
with a new projection of [CLS], so that it finds nothing before ICT, unlike the sentence
encoder of realm_pretrain_small. Arguments of get_config are those of realm_base. On one core ICT takes two minutes, a REALM
ten. Commands and figures: docs/results_realm.md.
"""

import ml_collections

from configs import realm_pretrain_small
from configs.bases import realm_base, sections


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Return the configuration; see realm_base for `arg`."""
  sections.check_arg(arg, realm_base.ARGS)
  config = realm_pretrain_small.get_config('base')
  config.embedder.num_layers = 1
  config.model.update(
    pooling='cls',
    projection_size=128,
    projection_init='normal',
    projection_norm_scale=0.35,  # vectors as long as those of 384 values at 0.2
  )
  config.refresh.every = 80
  config.warm_start.ict.update(num_steps=400, batch_size=32, learning_rate=5e-4)
  config.update(num_steps=400, eval_every=100, checkpoint_every=100)
  return realm_base.finish(config, arg)
