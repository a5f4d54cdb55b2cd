# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A REALM with a retriever that has much to learn; two CPU cores.

Paper: Guu et al. 2020, Table 2. The retriever is the first layer of all-MiniLM-L6-v2
with a new projection of [CLS], so that it finds nothing before ICT, unlike the
sentence encoder of realm_pretrain_small. On one core ICT takes two minutes, a REALM
ten. Commands and figures: docs/lab-notes/realm.md.
"""

from configs import realm_pretrain_small
from experiments.engine import configs
from experiments.realm import config as config_lib


def get_config(arg: str = 'base') -> configs.Config:
  c = realm_pretrain_small.get_config()
  c.model.pooling = 'cls'
  c.model.projection_size = 128
  c.model.projection_init = 'normal'
  c.model.projection_norm_scale = 0.35  # vectors as long as 384 values at 0.2
  c.embedder.num_layers = 1
  c.refresh.every = 80
  c.num_steps = 400
  c.eval_every = c.checkpoint_every = 100
  ict = config_lib.WarmStart(num_steps=400, batch_size=32, learning_rate=5e-4)
  config_lib.set_variant(c, arg, ict)
  return c
