# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Claims classified by the blocks retrieved for them, as in FEVER and HoVer.

Lee et al.'s code has this head beside the reader of spans. Data, retriever and
beams are those of open_qa_small. Retriever and classifier start from
all-MiniLM-L6-v2. On the small set of the tests, three minutes of one CPU core (60
steps):

  DATA=tests/data/claims
  python -m experiments.train --config=configs/claims_base.py \
    --config.corpus.path=$DATA/documents.jsonl \
    --config.claims.train="('fever:train=$DATA/train.jsonl',)" \
    --config.claims.dev="('fever:dev=$DATA/dev.jsonl',)" \
    --config.lookup.reader_beam=2 --workdir=runs/claims
  python -m experiments.evaluate --config=configs/claims_base.py \
    --config.evaluate.claims="('fever:dev=$DATA/dev.jsonl',)" --workdir=runs/claims

This run shows the commands, not a result: the evidence comes first for all 13
held-out claims that have evidence, but 8 of all 18 claims are classified right, no
better than chance after 36 training claims (7 are of the commonest class).

Argument: base, blocks, bm25, random, test, blocks_test, ...; see config_lib.set_variant.
"""

import ml_collections

from experiments.engine import configs
from experiments.open_qa import config as config_lib


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Return the configuration; `config_lib.set_variant` lists the arguments."""
  c = configs.of(config_lib.ClaimsConfig)
  c.corpus.kind = 'jsonl'
  c.blocks.max_length = 96
  c.layout.query_length = 64
  c.lookup.question_length = 64
  c.lookup.row_length = 112
  configs.for_command(c, 'evaluate', ks=(1, 5, 20, 100))

  # The identity keeps the knowledge of all-MiniLM-L6-v2; 0.2 gives scores of a few
  # nats; 1 would give one block all the probability.
  c.model.pooling = 'mean'
  c.model.projection_size = 384
  c.model.projection_init = 'identity'
  c.model.projection_norm_scale = 0.2
  c.model.projection_dropout_rate = 0.0
  c.embedder.checkpoint = 'minilm'
  c.encoder.checkpoint = 'minilm'

  # BERT's Adam has no bias correction: its first steps are thrice as long, which a
  # run of thousands forgets and one of hundreds does not.
  c.optimizer.name = 'adamw'
  c.optimizer.b2 = 0.98
  c.optimizer.learning_rate = 2e-4
  c.optimizer.warmup_steps = 10
  # all-MiniLM-L6-v2 retrieves well, and must not lose it at once.
  c.optimizer.part_scales = {'embedder': 0.05}

  c.batch_size = 8
  c.num_steps = 60
  c.eval_every = 30
  c.eval_batches = 16
  c.checkpoint_every = 30
  config_lib.set_variant(c, arg)
  return c
