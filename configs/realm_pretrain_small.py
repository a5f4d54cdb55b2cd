# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""REALM on Simple English Wikipedia's first thousand documents; two CPU cores.

Paper: Guu et al. 2020, Table 2. Embedder and encoder start from all-MiniLM-L6-v2,
then the embedder from ICT, the encoder from masked language modelling. The rows of
the table, an hour in all:

  C=configs/realm_pretrain_small.py
  R="--config.corpus.path=simplewiki.jsonl.xz --config.data_dir=runs/table2/data"
  S="--config.embedder_from=runs/table2/ict --config.encoder_from=runs/table2/mlm"
  Q="--config.evaluate.questions=('webquestions.json','curatedtrec.tsv')"
  python -m experiments.realm.prepare --config=$C $R --workdir=runs/table2
  python -m experiments.realm.train --config=$C:ict $R --workdir=runs/table2/ict
  python -m experiments.realm.train --config=$C:mlm $R --workdir=runs/table2/mlm
  python -m experiments.realm.train --config=$C $R $S --workdir=runs/table2/salient
  for run in ict salient; do
    python -m experiments.realm.evaluate --config=$C $R $Q --workdir=runs/table2/$run
  done
  python -m experiments.tables.tables --table=realm_2 \
    --run=runs/table2/ict --run=runs/table2/salient

The other rows are --config.masker=uniform, --config.masker=span and
--config.refresh.staleness=30. Any corpus of some 10^3 documents serves, a larger one
in more time. --table=curves draws the curves of a run; with
--config.evaluate.during_training=True and $Q they include the recall of every new
index. Expected figures are in docs/results_realm.md.
"""

import ml_collections

from configs.bases import realm_base, realm_sections


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Return the configuration; see realm_base for `arg`."""
  config = realm_base.get_config(arg)
  config.corpus.update(kind='jsonl', max_documents=1000)
  config.blocks.max_length = 64
  config.valid_fraction = 0.05
  config.layout.update(query_length=48, num_candidates=4)
  config.refresh.every = 120
  realm_sections.no_dropout(config)
  realm_sections.start_from_minilm(config, embedder_scale=0.1)
  config.optimizer.warmup_steps = 30
  config.warm_start.ict.num_steps = 200
  config.warm_start.mlm.num_steps = 800
  config.update(
    batch_size=4,
    num_steps=240,
    eval_every=120,
    eval_batches=40,
    checkpoint_every=120,
  )
  return realm_base.finish(config, arg)
