# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""A RETRO of 10.3 M parameters for two CPU cores, on any JSON lines.

Paper: Borgeaud et al. 2021, at a hundredth of its size and less. With the
documents of Simple English Wikipedia in documents.jsonl.xz, of which the first
16,000 make 205,456 chunks:

  python -m experiments.prepare --config=configs/retro_pretrain_small.py \
    --config.corpus.path=documents.jsonl.xz \
    --config.corpus.max_documents=16000 --workdir=runs/simplewiki
  python -m experiments.train --config=configs/retro_pretrain_small.py \
    --config.data_dir=runs/simplewiki/data --workdir=runs/simplewiki/retro
  python -m experiments.train \
    --config=configs/retro_pretrain_small.py:baseline \
    --config.data_dir=runs/simplewiki/data --workdir=runs/simplewiki/baseline
  python -m experiments.evaluate \
    --config=configs/retro_pretrain_small.py --workdir=runs/simplewiki/retro \
    --config.evaluate.baseline_workdir=runs/simplewiki/baseline \
    --config.evaluate.oracle=True

Samples, neighbors, leakage and tables of the run:

  C=--config=configs/retro_pretrain_small.py
  T=--config.evaluate.baseline_workdir=runs/simplewiki/baseline
  python -m experiments.sample $C --workdir=runs/simplewiki/retro \
    --prompt='Berlin is the capital of' --stream
  python -m experiments.inspect $C --workdir=runs/simplewiki/retro
  python -m experiments.leakage $C --workdir=runs/simplewiki/retro $T
  python -m experiments.sweep $C --workdir=runs/simplewiki/retro \
    --sweep=datastore
  python -m experiments.tables.tables --run=retro=runs/simplewiki/retro \
    --table=retro_13 --table=retro_14 --table=retro_leakage --output=tables

RETROfit of the baseline, 8.3 M frozen parameters and 1.9 M new ones (section 4.2 and
appendix B.2): the decoder is frozen; encoder and chunked cross-attention are new and
trained alone, under the schedule of pre-training, begun anew. In the paper 3 % of the
sequences of pre-training suffice. RETRO[OFF] and the baseline are then one row, to
the last digit:

  python -m experiments.train --config=configs/retro_pretrain_small.py \
    --config.retrofit_from=runs/simplewiki/baseline \
    --config.data_dir=runs/simplewiki/data --workdir=runs/simplewiki/retrofit
  python -m experiments.evaluate \
    --config=configs/retro_pretrain_small.py --workdir=runs/simplewiki/retrofit \
    --config.evaluate.baseline_workdir=runs/simplewiki/baseline
  python -m experiments.tables.tables --table=retro_retrofit --output=tables \
    --run=retrofit=runs/simplewiki/retrofit --run=scratch=runs/simplewiki/retro

Results go into --workdir; --config.evaluate.workdir names the evaluated run when the
results belong in another folder. Figures and times: docs/results/retro.md.
"""

import ml_collections

from configs import retro_variants
from experiments.engine import configs
from experiments.retro.config import Config


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Return the configuration; see retro_variants for `arg`."""
  c = configs.of(Config)
  # Data.
  c.corpus.kind = 'jsonl'
  c.tokenizer.vocab_size = 1024  # few tokens, each soon well known
  c.valid_fraction = 0.005
  c.test_fraction = 0.005
  # Model.
  c.model.d_model = 320
  c.model.d_ff = 1280
  c.model.num_heads = 10
  c.model.head_dim = 32
  c.model.num_layers = 6
  c.model.cca_layers = (3, 6)
  c.model.encoder_d_model = 320
  c.model.encoder_d_ff = 640
  c.model.encoder_num_heads = 5
  c.model.encoder_head_dim = 32
  c.model.encoder_num_layers = 1
  c.model.share_embeddings = True
  c.model.copy_init = True  # 10^7 tokens are too few to learn to copy
  c.model.position_base = 100.0  # wavelengths up to 628 tokens, about a row
  c.model.init_scale = 0.055  # of 320 rows: activations keep their size
  # Training.
  c.sequence_chunks = 8  # 512 tokens
  c.num_neighbors = 2
  c.batch_size = 4
  c.num_steps = 2000
  c.optimizer.learning_rate = 1.2e-3
  c.optimizer.warmup_steps = 100
  c.log_every = 25
  c.eval_every = 200
  c.eval_batches = 30
  c.checkpoint_every = 200
  configs.for_command(c, 'evaluate', num_neighbors=(2, 1, 4))
  return retro_variants.finish(c, arg)
