# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""RETRO 7b5 as published: Borgeaud et al. 2021, Tables 2 and 10.

419 B tokens in sequences of 2048, vocabulary 128,000, CCA in every third layer
from the sixth (the reading of Table 2). Sized for 256 TPU v4 chips or as many GPUs of 80 GB;
not run here. Bring a corpus in shards of JSON lines:

  python -m experiments.retro_prepare --config=configs/retro_pretrain_7b5.py \
    --config.corpus.path='corpus/*.jsonl.gz' --workdir=runs/7b5
  python -m experiments.retro_train --config=configs/retro_pretrain_7b5.py \
    --config.data_dir=runs/7b5/data --workdir=runs/7b5/retro
"""

import ml_collections

from configs import retro_base


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Returns the configuration; see retro_base for `arg`."""
  config = retro_base.get_config(arg)
  config.corpus.kind = 'jsonl'
  config.tokenizer.vocab_size = 128_000
  config.valid_fraction = 0.001
  config.model.update(
    {
      'd_model': 4096,
      'd_ff': 16384,
      'num_heads': 32,
      'head_dim': 128,
      'num_layers': 32,
      'cca_layers': (6, 9, 12, 15, 18, 21, 24, 27, 30),
      'encoder_d_model': 896,
      'encoder_d_ff': 3584,
      'encoder_num_heads': 16,
      'encoder_head_dim': 64,
      'encoder_num_layers': 2,
      'encoder_ca_layers': (1,),
      'share_embeddings': False,
      'dtype': 'bfloat16',
      'remat': True,
    }
  )
  config.sequence_chunks = 32
  config.batch_size = 1024
  config.num_workers = 8
  config.optimizer.learning_rate = 1e-4
  config.optimizer.warmup_steps = 750
  config.num_steps = 200_000
  config.log_every = 100
  config.eval_every = 5000
  config.eval_batches = 64
  config.checkpoint_every = 5000
  config.mesh = {'data': -1, 'fsdp': 32, 'tensor': 2}
  return retro_base.finish(config, arg)
