# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Claims classified by the blocks retrieved for them, as in FEVER and HoVer.

Lee et al.'s code has this head beside the reader of spans. Retriever and classifier
start from all-MiniLM-L6-v2. On the small set of the tests, three minutes of a core:

  DATA=tests/data/claims
  python -m experiments.train --config=configs/claims_base.py \
    --config.corpus.path=$DATA/documents.jsonl \
    --config.claims.train="('fever:train=$DATA/train.jsonl',)" \
    --config.claims.dev="('fever:dev=$DATA/dev.jsonl',)" \
    --config.lookup.reader_beam=2 --workdir=runs/claims
  python -m experiments.evaluate --config=configs/claims_base.py \
    --config.evaluate.claims="('fever:dev=$DATA/dev.jsonl',)" --workdir=runs/claims

No result: the evidence comes first for all 13 held-out claims that have evidence, but
8 of 18 claims are classified right, as by chance.
"""

from experiments.engine import configs
from experiments.open_qa import config as config_lib
from experiments.realm import config as realm_config


def get_config(arg: str = 'base') -> configs.Config:
  c = configs.of(config_lib.ClaimsConfig)
  c.corpus.kind = 'jsonl'
  c.blocks.max_length = 96
  c.layout.query_length = 64
  c.lookup.row_length = 112
  configs.for_command(c, 'evaluate', ks=(1, 5, 20, 100))

  realm_config.start_from_minilm(c, dropout_rate=-1.0)  # the checkpoint's

  c.optimizer.name = 'adamw'  # BERT's Adam starts with too long steps
  c.optimizer.b2 = 0.98
  c.optimizer.learning_rate = 2e-4
  c.optimizer.warmup_steps = 10
  c.optimizer.part_scales = {'embedder': 0.05}  # it retrieves well already

  c.batch_size = 8
  c.num_steps = 60
  c.eval_every = c.checkpoint_every = 30
  c.eval_batches = 16
  config_lib.set_variant(c, arg)
  return c
