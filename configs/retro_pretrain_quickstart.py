# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""RETRO on the packaged vital articles of Wikipedia, about 2 M tokens.

Paper: Borgeaud et al. 2021 (arXiv 2112.04426). Two CPU cores, ten minutes:

  python -m experiments.quickstart --config=configs/retro_pretrain_quickstart.py \
    --workdir=runs/vital

The argument short, which `make quickstart` runs, goes on for 100 steps from the packaged
RETRO, on two fifths of the articles. Expected figures of both: docs/lab-notes/retro.md.
The argument ngram is a baseline with a memory of n-grams, which is not the paper's (see
retro_jax/nn/ngram_memory.py): experiments.train and experiments.evaluate take it.
"""

from configs import retro_variants
from experiments.engine import configs
from experiments.retro.config import Config
from retro_jax.trained import packaged


def get_config(arg: str = 'base') -> configs.Config:
  c = configs.of(Config)
  # Data.
  c.tokenizer.vocab_size = 1024  # few tokens, each soon well known
  c.test_fraction = 0.02
  # Model.
  c.model.d_model = 128
  c.model.d_ff = 512
  c.model.num_heads = 4
  c.model.head_dim = 32
  c.model.num_layers = 4
  c.model.cca_layers = (2, 4)
  c.model.encoder_d_model = 128
  c.model.encoder_d_ff = 512
  c.model.encoder_num_heads = 4
  c.model.encoder_head_dim = 32
  c.model.encoder_num_layers = 1
  c.model.share_embeddings = True
  c.model.init_scale = 0.07  # of 128 rows: activations keep their size
  c.model.copy_init = True  # 10^6 tokens are too few to learn to copy
  c.model.position_base = 100.0  # wavelengths up to 628 tokens, about a row
  # Training.
  c.sequence_chunks = 8  # 512 tokens
  c.batch_size = 4
  c.num_steps = 500
  c.optimizer.learning_rate = 3e-3
  c.optimizer.warmup_steps = 50
  c.log_every = 20
  c.eval_every = c.checkpoint_every = 125
  c.eval_batches = 8
  if arg == 'short':
    # Its training left out the same test documents, by their ids.
    c.start_from = c.tokenizer.path = str(packaged.FOLDER)
    c.corpus.max_documents = 4000
    c.optimizer.learning_rate = 5e-4
    c.optimizer.warmup_steps = 10
    c.num_steps = c.eval_every = c.checkpoint_every = 100
    arg = 'base'
  if not arg.startswith('ngram'):
    return retro_variants.finish(c, arg)
  c = retro_variants.finish(c, arg.replace('ngram', 'baseline'))
  c.model.ngrams.layers = (1, 2)
  if arg.endswith('test'):
    c.model.ngrams.rows = 64
  return c
