# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""An embedder taught by the quickstart's RETRO.

Papers: Shi et al. 2023, arXiv 2301.12652 (REPLUG LSR); Sachan et al. 2021 (EMDR2);
Izacard et al. 2022, arXiv 2208.03299 (perplexity distillation). The first has gamma =
beta = .1 and a learning rate of 2e-5; here gains of single neighbors differ by .05 nats
a token and cosines by .04. Two CPU cores, after retro_pretrain_quickstart; expected
figures: docs/lab-notes/retro.md.

  C="--config=configs/retro_retriever_quickstart.py --workdir=runs/taught"
  R=runs/vital/retro
  python -m experiments.train $C --config.retriever.language_model=$R
  python -m experiments.prepare $C --config.embedder.path=runs/taught/embedder

and the comparison of docs/retrievers.md.
"""

from configs import retro_variants
from experiments.engine import configs
from experiments.taught.config import Config


def get_config(arg: str = 'base') -> configs.Config:
  configs.check_arg(arg, ('base', 'test'))
  c = configs.of(Config)
  # Data: those of the quickstart.
  c.tokenizer.vocab_size = 1024
  c.test_fraction = 0.02
  # Rows, of which chunks ask for candidates.
  c.sequence_chunks = 8
  c.retriever.num_candidates = 6
  c.retriever.max_length = 48
  # Training.
  c.batch_size = 2
  c.num_steps = 180
  c.optimizer.learning_rate = 5e-5
  c.optimizer.warmup_steps = 10
  c.eval_every = 90
  c.eval_batches = 16
  c.checkpoint_every = 45
  if arg == 'test':
    retro_variants.finish(c, arg)
    c.retriever.num_candidates = 3
    c.retriever.queries = 2
    c.retriever.max_length = 16
  return c
