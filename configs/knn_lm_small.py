# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""kNN-LM from the small RETRO's baseline, or from that RETRO itself.

Papers: Khandelwal et al. 2020, arXiv 1911.00172; Borgeaud et al. 2021, Table 4
and appendix C.2, whose lambda 0.118 and alpha 0.00785 make one row. Two CPU cores,
after the commands of retro_pretrain_small:

  python -m experiments.knn_lm.build --config=configs/knn_lm_small.py \
    --config.knn_lm.model_workdir=runs/simplewiki/baseline \
    --workdir=runs/simplewiki/knn_lm
  python -m experiments.knn_lm.evaluate --config=configs/knn_lm_small.py \
    --config.knn_lm.model_workdir=runs/simplewiki/baseline \
    --config.knn_lm.retro_workdir=runs/simplewiki/retro \
    --workdir=runs/simplewiki/knn_lm

A datastore takes 640 bytes a token; ScaNN needs six times as much memory while it
is built. --config.knn_lm.max_documents bounds it.
"""

import ml_collections

from configs.bases import retro_base, sections
from experiments.knn_lm import settings


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Return the configuration; see retro_base for `arg`."""
  config = retro_base.small(arg)
  config.knn_lm = sections.of(
    settings.KnnLm, index=sections.index(scann={'rescore': 'int8'})
  )
  config.evaluate.update(num_neighbors=(2,), shuffled=False)
  config = retro_base.finish(config, arg)
  if arg.endswith('test'):
    config.knn_lm.update(
      tokens_per_shard=1000,
      ks=(1, 4, 16),
      temperatures=(10.0, 100.0),
      lambdas=(0.0, 0.1, 0.3),
    )
    config.knn_lm.index.num_queries = 20
  return config
