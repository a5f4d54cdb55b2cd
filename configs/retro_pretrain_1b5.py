# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""RETRO 1b5 as published: Borgeaud et al. 2021, Tables 2 and 10.

419 B tokens in sequences of 2048, vocabulary 128,000, CCA in every third layer
from the sixth (the reading of Table 2). Not run here; sized for 64 GPUs of 80
GB or a TPU v4-128 (64 chips of 32 GB). In training a device takes 256 / 64 / 2
= 2 sequences at a time: 2.1 GB of logits and as much of their gradient, beside
5 GB of parameters, gradients and moments, an eighth of all.

Bring a corpus in shards of JSON lines:

  python -m experiments.retro.prepare --config=configs/retro_pretrain_1b5.py \
    --config.corpus.path='corpus/*.jsonl.gz' --workdir=runs/1b5
  python -m experiments.retro.train --config=configs/retro_pretrain_1b5.py \
    --config.data_dir=runs/1b5/data --workdir=runs/1b5/retro
"""

import ml_collections

from configs import retro_base


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Returns the configuration; see retro_base for `arg`."""
  config = retro_base.published(arg)
  config.model.update(
    {
      'd_model': 2048,
      'd_ff': 8192,
      'num_heads': 16,
      'head_dim': 128,
      'num_layers': 24,
      'cca_layers': (6, 9, 12, 15, 18, 21, 24),
    }
  )
  config.batch_size = 256
  config.optimizer.accumulate_steps = 2
  config.mesh = {'data': -1, 'fsdp': 8, 'tensor': 1}
  config.evaluate.batch_size = 64
  return retro_base.finish(config, arg)
