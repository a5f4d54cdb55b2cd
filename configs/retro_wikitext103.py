# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Wikitext103 as published: Borgeaud et al. 2021, Table 11 and appendix C.2.

A baseline of 18 layers (Table 11; section 4.1 says 24) on sequences of 3,072
tokens, vocabulary 128,000, and its RETROfit under the same schedule, begun anew:
trained with 2 neighbors, evaluated with 10, scored with a context of three
quarters of a sequence. The paper takes the baseline of step 35,000, its best: end
the run of the baseline there. The paper's RETROfit retrieves from Wikipedia, this one
from the training documents. RETRO from scratch over-fits this text. The encoder
shares the embeddings and has the decoder's width; the paper gives no more of it. For 8
GPUs of 80 GB, 2 sequences on each at a time, not run here.

  C=--config=configs/retro_wikitext103.py R=runs/wikitext103
  python -m experiments.prepare $C --workdir=$R \
    --config.corpus.path=wikitext103/train.jsonl \
    --config.prepare.evaluation.name=wikitext103 \
    --config.prepare.evaluation.corpus.path=wikitext103/valid.jsonl
  python -m experiments.train $C:baseline --config.data_dir=$R/data \
    --workdir=$R/baseline
  python -m experiments.train $C --config.retrofit_from=$R/baseline \
    --config.data_dir=$R/data --workdir=$R/retrofit
  python -m experiments.evaluate $C --config.evaluate.split=wikitext103 \
    --config.evaluate.baseline_workdir=$R/baseline --workdir=$R/retrofit
  python -m experiments.tables.show --table=retro_4 --run=wikitext103=$R/retrofit

With another sequence_chunks set evaluate.stride_chunks to a quarter of it, too.
"""

from configs import retro_variants
from experiments.engine import configs
from experiments.retro.config import Config


def get_config(arg: str = 'base') -> configs.Config:
  c = configs.of(Config)
  # Data.
  c.corpus.kind = 'jsonl'
  c.tokenizer.vocab_size = 128_000
  c.valid_fraction = 0.0005
  c.test_fraction = 0.0005
  c.deduplicate.threshold = 0.8
  # Model.
  c.model.d_model = 1024
  c.model.d_ff = 4096
  c.model.num_layers = 18
  c.model.cca_layers = (6, 9, 12, 15, 18)
  c.model.encoder_d_model = 1024
  c.model.encoder_d_ff = 4096
  c.model.share_embeddings = True
  c.model.dropout_rate = 0.25
  c.model.dtype = 'bfloat16'
  c.model.remat = 'attention'
  # Training.
  c.sequence_chunks = 48
  c.num_workers = 8
  c.batch_size = 128
  c.num_steps = 100_000
  c.optimizer.learning_rate = 2.5e-4
  c.optimizer.warmup_steps = 4000
  c.optimizer.final_fraction = 0.08  # to 2e-5
  c.optimizer.weight_decay = 0.0  # Adam
  c.optimizer.accumulate_steps = 8
  c.log_every = 100
  c.eval_every = c.checkpoint_every = 1000
  c.eval_batches = 64
  retro_variants.finish(c, arg)
  k = c.neighbors.stored if arg.endswith('test') else 10
  evaluate = {'num_neighbors': (k,), 'batch_size': 16}
  evaluate['stride_chunks'] = (
    c.sequence_chunks // 4
  )  # three quarters of context
  configs.for_command(c, 'evaluate', **{**c.get('evaluate', {}), **evaluate})
  return c
