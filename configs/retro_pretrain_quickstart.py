# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""RETRO on the packaged vital articles of Wikipedia, about 2 M tokens.

Paper: Borgeaud et al. 2021. Two CPU cores, under 15 minutes in all; expected
figures are in docs/results_retro.md.

  make quickstart

or stage by stage:

  python -m experiments.retro.prepare \
    --config=configs/retro_pretrain_quickstart.py --workdir=runs/quickstart
"""

import ml_collections

from configs.bases import retro_base


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Return the configuration; see retro_base for `arg`."""
  config = retro_base.get_config(arg)
  config.tokenizer.vocab_size = 1024  # few tokens, each soon well known
  config.valid_fraction = 0.01
  config.test_fraction = 0.02
  config.model.update(
    d_model=128,
    d_ff=512,
    num_heads=4,
    head_dim=32,
    num_layers=4,
    cca_layers=(2, 4),
    encoder_d_model=128,
    encoder_d_ff=512,
    encoder_num_heads=4,
    encoder_head_dim=32,
    encoder_num_layers=1,
    init_scale=0.07,  # of a matrix of 128 rows: activations keep their size
    copy_init=True,  # 10^6 tokens are too few to learn to copy
    position_base=100.0,  # wavelengths up to 628 tokens, about a row
  )
  config.optimizer.learning_rate = 3e-3
  config.update(
    batch_size=4,
    num_steps=500,
    log_every=20,
    eval_every=125,
    checkpoint_every=125,
  )
  return retro_base.finish(config, arg)
