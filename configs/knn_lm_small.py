# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""kNN-LM from the small RETRO's baseline.

Papers: Khandelwal et al. 2020, arXiv 1911.00172; Borgeaud et al. 2021, Table 4
and appendix C.2, whose lambda 0.118 and alpha 0.00785 make one row. Two CPU cores,
after the commands of retro_pretrain_small:

  C="--config=configs/knn_lm_small.py --workdir=runs/simplewiki/knn_lm
    --config.knn_lm.model_workdir=runs/simplewiki/baseline"
  python -m experiments.prepare $C
  python -m experiments.evaluate $C \
    --config.knn_lm.retro_workdir=runs/simplewiki/retro

A datastore takes 640 bytes a token; ScaNN needs six times as much memory while it
is built. --config.knn_lm.max_documents bounds it.
"""

from configs import retro_variants
from experiments.engine import configs
from experiments.knn_lm.config import Config


def get_config(arg: str = 'base') -> configs.Config:
  c = configs.of(Config)
  c.knn_lm.index.scann = {'rescore': 'int8'}
  # Data and mesh are those of the run that makes the keys; nothing is trained.
  c.num_steps = c.eval_every = c.checkpoint_every = 1
  c.eval_batches = 0
  evaluate = {'num_neighbors': (2,), 'shuffled': False}
  configs.for_command(c, 'evaluate', **evaluate)
  if arg.endswith('test'):
    retro_variants.finish(c, arg)
    c.knn_lm.tokens_per_shard = 1000
    c.knn_lm.ks = (1, 4, 16)
    c.knn_lm.temperatures = (10.0, 100.0)
    c.knn_lm.lambdas = (0.0, 0.1, 0.3)
    c.knn_lm.index.num_queries = 20
    configs.for_command(c, 'evaluate', **{**c.evaluate, **evaluate})
  return c
