# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""REALM as published: two BERTs base, 200,000 steps of 512 examples.

Paper: Guu et al. 2020, section 4.2 and Table 1 (exact match after fine-tuning on
NQ 39.2, WebQuestions 40.2, CuratedTREC 46.8); 64 TPUs there, not run here. BERT is a
folder with bert-base-uncased in the Hugging Face layout.

  B="--config=configs/realm_pretrain_base.py --config.data_dir=DATA
    --config.corpus.kind=wikiextractor --config.corpus.path=enwiki
    --config.tokenizer.path=BERT --config.embedder.checkpoint=BERT
    --config.encoder.checkpoint=BERT"
  python -m experiments.prepare $B --workdir=runs/base
  python -m experiments.train ${B/base.py/base.py:ict} --workdir=runs/base/ict
  python -m experiments.train $B --config.embedder_from=runs/base/ict \
    --config.distributed=True --workdir=runs/base/realm

With --config.refresh.schedule=async --config.refresh.builder=external other hosts build
the index: python -m experiments.realm.refresh_worker, same flags and workdir.
"""

from experiments.engine import configs
from experiments.realm import config as config_lib


def get_config(arg: str = 'base') -> configs.Config:
  c = configs.of(config_lib.Config)
  c.corpus.kind = 'jsonl'
  c.corpus.wikipedia = True
  c.tokens.num_processes = 16
  c.valid_fraction = 0.02
  c.blocks.max_length = 288
  c.layout.query_length = 96
  c.layout.num_candidates = 8
  c.model.pooling = 'pooler'
  c.model.projection_size = 128
  c.model.projection_dropout_rate = 0.1
  for bert in (c.embedder, c.encoder):
    bert.update(activation='gelu_tanh', dtype='bfloat16', remat=True)

  c.warm_start.update(num_steps=100_000, batch_size=256)
  c.ict.gradient_cache_parts = 4
  c.ict.mask_duplicates = False  # as released
  c.index.searcher = 'scann'
  c.refresh.every = 500

  c.mesh.fsdp = 4
  c.optimizer.learning_rate = 3e-5
  c.batch_size = 512
  c.num_steps = 200_000
  c.log_every = 100
  c.eval_every = 5000
  c.eval_batches = 16
  c.checkpoint_every = 5000 if arg.startswith('ict') else 500
  ict = config_lib.WarmStart(
    num_steps=100_000, batch_size=4096, learning_rate=1e-4
  )
  config_lib.set_variant(c, arg, ict)
  return c
