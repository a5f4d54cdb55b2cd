# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""RETRO 7b5 as published: Borgeaud et al. 2021, Tables 2 and 10.

419 B tokens in sequences of 2048, vocabulary 128,000, CCA in every third layer
from the sixth (the reading of Table 2). Not run here; sized for 256 TPU v4
chips of 32 GB, or as many GPUs. Two chips share a sequence and its logits. In
training they take 1024 / 128 / 4 = 2 sequences at a time: on each 1.0 GB of
logits and as much of their gradient, beside 3 GB of parameters, gradients and
moments, a 64th of all.

Bring a corpus in shards of JSON lines:

  python -m experiments.retro.prepare --config=configs/retro_pretrain_7b5.py \
    --config.corpus.path='corpus/*.jsonl.gz' --workdir=runs/7b5
  python -m experiments.retro.train --config=configs/retro_pretrain_7b5.py \
    --config.data_dir=runs/7b5/data --workdir=runs/7b5/retro
"""

import ml_collections

from configs import retro_base


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Returns the configuration; see retro_base for `arg`."""
  config = retro_base.published(arg)
  config.model.update(
    {
      'd_model': 4096,
      'd_ff': 16384,
      'num_heads': 32,
      'head_dim': 128,
      'num_layers': 32,
      'cca_layers': (6, 9, 12, 15, 18, 21, 24, 27, 30),
    }
  )
  config.optimizer.learning_rate = 1e-4
  config.num_steps = 200_000
  config.batch_size = 1024
  config.optimizer.accumulate_steps = 4
  config.mesh = {'data': -1, 'fsdp': 32, 'tensor': 2}
  config.evaluate.batch_size = 128
  return retro_base.finish(config, arg)
