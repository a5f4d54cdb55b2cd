# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""REALM on Simple English Wikipedia's first thousand documents; two CPU cores.

Paper: Guu et al. 2020, Table 2. Embedder and encoder start from all-MiniLM-L6-v2,
then the embedder from ICT, the encoder from masked language modelling. Any corpus of
some 10^3 documents serves. The table takes an hour; figures: docs/lab-notes/realm.md.

  C=configs/realm_pretrain_small.py
  R="--config.corpus.path=simplewiki.jsonl.xz --config.data_dir=runs/table2/data"
  S="--config.embedder_from=runs/table2/ict --config.encoder_from=runs/table2/mlm"
  Q="--config.evaluate.questions=('webquestions.json','curatedtrec.tsv')"
  python -m experiments.prepare --config=$C $R --workdir=runs/table2
  python -m experiments.train --config=$C:ict $R --workdir=runs/table2/ict
  python -m experiments.train --config=$C:mlm $R --workdir=runs/table2/mlm
  python -m experiments.train --config=$C $R $S --workdir=runs/table2/salient
  for run in ict salient; do
    python -m experiments.evaluate --config=$C $R $Q --workdir=runs/table2/$run
  done
  python -m experiments.tables.show --table=realm_2 \
    --run=runs/table2/ict --run=runs/table2/salient

The other rows are the arguments uniform, span and stale. `tensorboard --logdir=runs` draws curves.
"""

from experiments.engine import configs
from experiments.realm import config as config_lib


def get_config(arg: str = 'base') -> configs.Config:
  c = configs.of(config_lib.Config)
  c.corpus.kind = 'jsonl'
  c.corpus.wikipedia = True
  c.corpus.max_documents = 1000
  c.valid_fraction = 0.05
  c.blocks.max_length = 64
  c.layout.query_length = 48
  c.layout.num_candidates = 4

  config_lib.start_from_minilm(c)

  c.warm_start.num_steps = 800
  c.refresh.every = 120
  c.optimizer.learning_rate = 2e-4
  c.optimizer.warmup_steps = 30
  c.optimizer.part_scales = {'embedder': 0.1}  # it retrieves well already

  c.batch_size = 4
  c.num_steps = 240
  c.eval_every = c.checkpoint_every = 120
  c.eval_batches = 40
  ict = config_lib.WarmStart(num_steps=200, batch_size=32, learning_rate=1e-4)
  config_lib.set_variant(c, arg, ict)
  return c
