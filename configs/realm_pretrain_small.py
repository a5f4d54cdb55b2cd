# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""REALM on Simple English Wikipedia, or any corpus of some 10^4 documents.

Paper: Guu et al. 2020. Embedder and encoder start from all-MiniLM-L6-v2.

  S="--config=configs/realm_pretrain_small.py --config.corpus.path=docs.jsonl.xz"
  python -m experiments.realm_prepare $S --workdir=runs/realm_small
  python -m experiments.realm_train $S --workdir=runs/realm_small

and Table 2, a row at a time, with questions whose answers are to be found:

  Q='("webquestions.json", "curatedtrec.tsv")'
  python -m experiments.realm_table2 $S --config.evaluate.questions="$Q" \
    --workdir=runs/table2 --row=salient
"""

import ml_collections

from configs import realm_base


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Returns the configuration; see realm_base for `arg`."""
  config = realm_base.get_config(arg)
  config.corpus.kind = 'jsonl'
  config.corpus.max_documents = 20_000
  config.blocks.max_length = 96
  config.spans.max_blocks = 12_000
  config.valid_fraction = 0.05
  config.layout.query_length = 48
  config.layout.num_candidates = 4
  for bert in (config.embedder, config.encoder):
    bert.dropout_rate = 0.0
    bert.attention_dropout_rate = 0.0
  config.refresh.every = 250
  config.optimizer.learning_rate = 2e-4
  # all-MiniLM-L6-v2 retrieves well; what it knows is not to be lost at once.
  config.optimizer.part_scales = {'embedder': 0.1}
  config.batch_size = 4
  config.optimizer.accumulate_steps = 4  # one at a time: caches hold it
  config.num_steps = 2000
  config.warm_start.ict.num_steps = 1000
  config.eval_every = 250
  config.eval_batches = 50
  config.checkpoint_every = 250
  return realm_base.finish(config, arg)
