# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Wikitext103 as published: Borgeaud et al. 2021, Table 11 and appendix C.2.

A baseline of 18 layers (Table 11; section 4.1 says 24) on sequences of 3,072
tokens, vocabulary 128,000, and its RETROfit under the same schedule, begun anew:
trained with 2 neighbors, evaluated with 10, scored with a context of three
quarters of a sequence. The paper takes the baseline of step 35,000, its best: end
the run of the baseline there. The paper's RETROfit retrieves from Wikipedia, this one
from the training documents. RETRO from scratch over-fits this text. The encoder
shares the embeddings and has the decoder's width; the paper gives no more of it.
Written for 8 GPUs of 80 GB and not run here: in training a device takes 128 / 8 / 8 =
2 sequences at a time, 3.1 GB of logits and as much of their gradient.

Bring the articles as JSON lines, the training ones and those to be scored:

  python -m experiments.retro.prepare --config=configs/retro_wikitext103.py \
    --config.corpus.path=wikitext103/train.jsonl \
    --config.evaluation.name=wikitext103 \
    --config.evaluation.corpus.path=wikitext103/valid.jsonl \
    --workdir=runs/wikitext103
  python -m experiments.retro.train --config=configs/retro_wikitext103.py:baseline \
    --config.data_dir=runs/wikitext103/data --workdir=runs/wikitext103/baseline
  python -m experiments.retro.train --config=configs/retro_wikitext103.py \
    --config.retrofit_from=runs/wikitext103/baseline \
    --config.data_dir=runs/wikitext103/data \
    --workdir=runs/wikitext103/retrofit
  python -m experiments.retro.evaluate --config=configs/retro_wikitext103.py \
    --config.evaluate.split=wikitext103 \
    --config.evaluate.baseline_workdir=runs/wikitext103/baseline \
    --workdir=runs/wikitext103/retrofit
  python -m experiments.tables.tables --table=retro_4 \
    --run=wikitext103=runs/wikitext103/retrofit
"""

import ml_collections

from configs.bases import retro_base


def get_config(arg: str = 'base') -> ml_collections.ConfigDict:
  """Return the configuration; see retro_base for `arg`."""
  config = retro_base.published(arg)
  config.model.update(
    d_model=1024,
    d_ff=4096,
    num_heads=16,
    head_dim=64,
    num_layers=18,
    cca_layers=(6, 9, 12, 15, 18),
    encoder_d_model=1024,
    encoder_d_ff=4096,
    encoder_num_heads=16,
    encoder_head_dim=64,
    share_embeddings=True,
    dropout_rate=0.25,
  )
  config.optimizer.update(
    learning_rate=2.5e-4,
    warmup_steps=4000,
    final_fraction=0.08,  # to 2e-5
    weight_decay=0.0,  # Adam
    accumulate_steps=8,
  )
  config.update(
    sequence_chunks=48,
    batch_size=128,
    num_steps=100_000,
    eval_every=1000,
    checkpoint_every=1000,
  )
  config.evaluate.update(num_neighbors=(10,), overlap=0.75, batch_size=16)
  config = retro_base.finish(config, arg)
  if arg.endswith('test'):
    config.evaluate.num_neighbors = (config.neighbors.stored,)
  return config
