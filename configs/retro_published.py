# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""RETRO as published: Borgeaud et al. 2021, Tables 2 and 10, four sizes.

419 B tokens in sequences of 2048, vocabulary 128,000, CCA in every third layer
from the sixth (the reading of Table 2). Written for the devices below, compiled for
them and for smaller pods (docs/machines.md), and not run here. In training a
device holds 2 sequences at a time (425m: 4). Expected: bits per byte on C4 as in the
paper's Figure 1.

  argument  devices                                    parameters, gradients, moments
  172m      8 GPUs of 80 GB                            8 GB on each
  425m      8 GPUs of 80 GB                            15 GB on each
  1b5       64 GPUs of 80 GB, or 64 TPU v4 of 32 GB    5 GB on each, an eighth of all
  7b5       256 TPU v4 of 32 GB, or as many GPUs;      3 GB on each, a 64th of all
            two share a sequence

172m_baseline, ... are the baselines. Bring a corpus in shards of JSON lines:

  C=--config=configs/retro_published.py:1b5
  python -m experiments.prepare $C --config.corpus.path='corpus/*.jsonl.gz' \
    --workdir=runs/1b5
  python -m experiments.train $C --config.data_dir=runs/1b5/data \
    --workdir=runs/1b5/retro
"""

from configs import retro_variants
from experiments.engine import configs
from experiments.retro.config import Config
from retro_jax.nn import presets

# Size -> preset of retro_jax, sequences of an evaluation batch, changed sections.
SIZES = {
  '172m': ('172m', 16, {'optimizer': {'accumulate_steps': 16}}),
  '425m': ('425m', 16, {'optimizer': {'accumulate_steps': 8}}),
  '1b5': (
    '1.5b',
    64,
    {'optimizer': {'accumulate_steps': 2}, 'mesh': {'fsdp': 8}},
  ),
  '7b5': (
    '7.5b',
    128,
    {
      'optimizer': {'learning_rate': 1e-4, 'accumulate_steps': 4},
      'num_steps': 200_000,
      'batch_size': 1024,
      'mesh': {'fsdp': 32, 'tensor': 2},
    },
  ),
}
ARGS = (*SIZES, *(f'{x}_baseline' for x in SIZES), 'test', 'baseline_test')


def get_config(arg: str = '172m') -> configs.Config:
  configs.check_arg(arg, ARGS)
  size = arg.removesuffix('_baseline')
  preset, eval_batch, changes = SIZES.get(size, SIZES['172m'])
  sizes = presets.preset(preset)
  c = configs.of(Config)
  # Data: Table 1.
  c.corpus.kind = 'jsonl'
  c.tokenizer.vocab_size = 128_000
  c.valid_fraction = 0.0005
  c.test_fraction = 0.0005
  c.deduplicate.threshold = 0.8
  # Model: Tables 2 and 10; one encoder for all sizes, the default.
  for name in ('d_model', 'd_ff', 'num_heads', 'head_dim', 'num_layers'):
    c.model[name] = getattr(sizes, name)
  c.model.cca_layers = sizes.cca_layers
  c.model.dtype = 'bfloat16'
  c.model.remat = 'attention'
  # Training: section B.1. A sequence's logits take 2048 x 128,000 x 4 bytes = 1.05 GB
  # of a device, their gradient as much: hence the microbatches.
  c.sequence_chunks = 32
  c.num_workers = 8
  c.batch_size = 256
  c.num_steps = 800_000
  c.optimizer.learning_rate = 2e-4
  c.optimizer.warmup_steps = 750
  c.log_every = 100
  c.eval_every = c.checkpoint_every = 5000
  c.eval_batches = 64
  c.update(changes)
  configs.for_command(c, 'evaluate', batch_size=eval_batch)
  if size != arg:
    arg = 'baseline'
  return retro_variants.finish(c, arg if arg not in SIZES else 'base')
