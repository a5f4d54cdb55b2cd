# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""DPR from all-MiniLM-L6-v2 on Simple English Wikipedia's first thousand documents.

Karpukhin et al. 2020; two CPU cores; figures: docs/lab-notes/open_qa.md. The data folder
is that of a run of REALM or of question answering. Readers start from it with
--config.embedder_from=runs/dpr:

  python -m experiments.train --config=configs/dpr_small.py --workdir=runs/dpr \
    --config.corpus.path=simplewiki.jsonl.xz --config.data_dir=DATA \
    --config.questions.train="('webquestions:train=trainmodel.json,val.json',)"
"""

from experiments.engine import configs
from experiments.open_qa import config as config_lib
from experiments.realm import config as realm_config


def get_config(arg: str = 'base') -> configs.Config:
  configs.check_arg(arg, ('base', 'test'))
  c = configs.of(config_lib.DprConfig)
  c.corpus.kind = 'jsonl'
  c.corpus.wikipedia = True
  c.corpus.max_documents = 1000
  c.blocks.max_length = 64
  c.layout.query_length = 32
  c.question_length = 32

  realm_config.start_from_minilm(c)

  c.optimizer.learning_rate = 2e-5
  c.optimizer.warmup_steps = 20

  c.batch_size = 16
  c.num_steps = 150
  c.eval_every = c.checkpoint_every = 100
  c.eval_batches = 8
  if arg == 'test':
    realm_config.set_test_size(c)
    c.dpr.depth = 20
    c.question_length = 24
  return c
