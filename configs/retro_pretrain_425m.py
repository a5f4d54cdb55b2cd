# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""RETRO 425m as published: Borgeaud et al. 2021, Tables 2 and 10.

419 B tokens in sequences of 2048, vocabulary 128,000, CCA in every third layer
from the sixth (the reading of Table 2). Not run here; sized for 8 GPUs of 80
GB. In training a device takes 256 / 8 / 8 = 4 sequences at a time: 4.2 GB of
logits and as much of their gradient, beside 15 GB of parameters, gradients and
moments.

Bring a corpus in shards of JSON lines:

  python -m experiments.retro.prepare --config=configs/retro_pretrain_425m.py \
    --config.corpus.path='corpus/*.jsonl.gz' --workdir=runs/425m
  python -m experiments.retro.train --config=configs/retro_pretrain_425m.py \
    --config.data_dir=runs/425m/data --workdir=runs/425m/retro
"""

import ml_collections

from configs import retro_base


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Returns the configuration; see retro_base for `arg`."""
  config = retro_base.published(arg)
  config.model.update(
    {
      'd_model': 1536,
      'd_ff': 6144,
      'num_heads': 12,
      'head_dim': 128,
      'num_layers': 12,
      'cca_layers': (6, 9, 12),
    }
  )
  config.batch_size = 256
  config.optimizer.accumulate_steps = 8
  config.mesh = {'data': -1, 'fsdp': 1, 'tensor': 1}
  config.evaluate.batch_size = 16
  return retro_base.finish(config, arg)
