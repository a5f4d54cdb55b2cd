# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""REALM on the packaged vital articles of Wikipedia, from all-MiniLM-L6-v2.

Paper: Guu et al. 2020. Two CPU cores, nine minutes; expected figures are in
docs/results_realm.md.

  make quickstart

or stage by stage:

  python -m experiments.realm.prepare \
    --config=configs/realm_pretrain_quickstart.py --workdir=runs/quickstart/realm
"""

import ml_collections

from configs.bases import realm_base, realm_sections


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Return the configuration; see realm_base for `arg`."""
  config = realm_base.get_config(arg)
  config.corpus.max_documents = 1200
  config.blocks.max_length = 64
  config.valid_fraction = 0.1
  config.layout.update(query_length=48, num_candidates=4)
  config.refresh.every = 50
  realm_sections.no_dropout(config)
  realm_sections.start_from_minilm(config, embedder_scale=0.1)
  config.optimizer.update(
    warmup_steps=30,
    accumulate_steps=4,  # one example at a time: caches hold it
  )
  config.update(batch_size=4, num_steps=100, eval_every=50, checkpoint_every=50)
  return realm_base.finish(config, arg)
