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

_LAMBDAS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.65, 0.8)


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Return the configuration; see retro_base for `arg`."""
  config = retro_base.small(arg)
  config.knn_lm = {
    'model_workdir': '',  # run whose newest model makes the keys; '': --workdir
    'retro_workdir': '',  # a RETRO evaluated on the same documents; '': none
    'retrieval': False,  # whether the model retrieves while it makes keys
    'num_neighbors': 2,  # RETRO's k then
    # Datastore.
    'max_documents': 0,  # training documents, evenly spread; 0: all
    'stride_chunks': 0,  # 0: half a sequence
    'batch_size': 8,
    'tokens_per_shard': 1 << 17,
    # Recall is that of the nearest keys among the max(ks) found, which are scored
    # again exactly: ScaNN rescores hashes in 8 bits only.
    'index': sections.index(scann={'rescore': 'int8'}),
    # Settings, each tried with each; a weight of 0 is the model alone.
    'ks': (8, 64, 256, 1024),
    # Of squared L2 distances.
    'temperatures': (1.0, 3.0, 10.0, 30.0, 100.0, 300.0),
    'lambdas': _LAMBDAS,
    'tune_share': 0.5,  # of the evaluated documents; the others are reported
    'fixed': {'weight': 0.118, 'alpha': 0.00785},  # the paper's, not tuned
  }
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
