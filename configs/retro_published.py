# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""RETRO as published: Borgeaud et al. 2021, Tables 2 and 10, four sizes.

419 B tokens in sequences of 2048, vocabulary 128,000, CCA in every third layer
from the sixth (the reading of Table 2). Written for the devices below, compiled for
them and for smaller pods (docs/accelerators.md), and not run here. In training a
device holds 2 sequences at a time (425m: 4).

  argument  devices                                    parameters, gradients, moments
  172m      8 GPUs of 80 GB                            8 GB on each
  425m      8 GPUs of 80 GB                            15 GB on each
  1b5       64 GPUs of 80 GB, or 64 TPU v4 of 32 GB    5 GB on each, an eighth of all
  7b5       256 TPU v4 of 32 GB, or as many GPUs;      3 GB on each, a 64th of all
            two share a sequence

172m_baseline, ... are the baselines; test and baseline_test run on a CPU in
seconds. Bring a corpus in shards of JSON lines:

  python -m experiments.retro.prepare --config=configs/retro_published.py:1b5 \
    --config.corpus.path='corpus/*.jsonl.gz' --workdir=runs/1b5
  python -m experiments.retro.train --config=configs/retro_published.py:1b5 \
    --config.data_dir=runs/1b5/data --workdir=runs/1b5/retro

Expected: bits per byte on C4 as in the paper's Figure 1.
"""

import ml_collections

from configs.bases import retro_base, sections
from retro_jax.nn import presets

# Size -> preset of retro_jax, sequences of an evaluation batch, changed sections. The
# first size serves the tests.
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
_DECODER = ('d_model', 'd_ff', 'num_heads', 'head_dim', 'num_layers')


def get_config(arg: str = '172m') -> ml_collections.ConfigDict:
  """Return the configuration of a size, of its baseline, or of a test."""
  sections.check_arg(arg, ARGS)
  size = arg.removesuffix('_baseline')
  preset, eval_batch, changes = SIZES.get(size, SIZES['172m'])
  sizes = presets.preset(preset)
  config = retro_base.published()
  config.model.update({name: getattr(sizes, name) for name in _DECODER})
  config.model.cca_layers = sizes.cca_layers
  config.batch_size = 256
  config.evaluate.batch_size = eval_batch
  config.update(changes)
  return retro_base.finish(config, arg if size == arg else 'baseline')
