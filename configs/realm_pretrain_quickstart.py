# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""REALM on the packaged vital articles of Wikipedia, from all-MiniLM-L6-v2.

Paper: Guu et al. 2020. Two CPU cores, nine minutes:

  python -m experiments.quickstart --config=configs/realm_pretrain_quickstart.py \
    --workdir=runs/vital/realm

The argument short, which `make quickstart` runs, starts from the packaged encoder
instead of masked language modelling and takes two fifths of the steps. Expected
figures of both: docs/lab-notes/realm.md.
"""

from experiments.engine import configs
from experiments.realm import config as config_lib


def get_config(arg: str = 'base') -> configs.Config:
  c = configs.of(config_lib.Config)
  c.corpus.max_documents = 1200
  c.valid_fraction = 0.1
  c.blocks.max_length = 64
  c.layout.query_length = 48
  c.layout.num_candidates = 4

  config_lib.start_from_minilm(c)

  c.refresh.every = 50
  c.optimizer.learning_rate = 2e-4
  c.optimizer.warmup_steps = 30
  c.optimizer.accumulate_steps = 4  # one example at a time: caches hold it
  c.optimizer.part_scales = {'embedder': 0.1}  # it retrieves well already

  c.batch_size = 4
  c.num_steps = 100
  c.eval_every = c.checkpoint_every = 50
  c.eval_batches = 16
  if arg == 'short':
    c.corpus.max_documents = 800
    c.encoder_from = 'packaged'  # never masked these articles
    c.refresh.every = 20
    c.optimizer.learning_rate = 5e-5
    c.optimizer.warmup_steps = 5
    c.num_steps = c.eval_every = c.checkpoint_every = 40
    arg = 'base'
  config_lib.set_variant(c, arg)
  return c
