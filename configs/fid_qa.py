# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Fusion-in-Decoder, fine-tuned on questions (arXiv 2007.01282).

Blocks, tokenizer and datastore are those of the run that retro_from names, a RETRO
(encoder and cross-attention are loaded) or a baseline (they are new). Argument: base
(the paper's 100 passages of 250 tokens), small (two CPU cores), test (seconds).

  C="--config=configs/fid_qa.py:small --workdir=runs/vital/fid"
  python -m experiments.train $C --config.retro_from=runs/vital/retro \
    --config.questions.train="('webquestions:train=train.json',)" \
    --config.questions.dev="('webquestions:dev=train.json',)"
  python -m experiments.evaluate $C \
    --config.evaluate.questions="('webquestions:test=test.json',)"

With --config.qa.reader=closed_book the encoder reads the question alone: the
closed-book twin, of equal size and training. Measured: docs/lab-notes/retro.md.
"""

from configs import retro_qa
from experiments.engine import configs


def get_config(arg: str = 'base') -> configs.Config:
  c = retro_qa.get_config(arg)
  c.qa.reader = 'fid'
  if arg == 'base':
    c.qa.num_passages = 100
    c.qa.passage_length = 250
    c.qa.answer_length = 50
    # The paper's fine-tuning of T5; its linear decay is a cosine here.
    c.batch_size = 64
    c.num_steps = 15_000
    c.optimizer.learning_rate = 5e-5
    c.optimizer.warmup_steps = 1000
    c.optimizer.final_fraction = 0.0
    c.optimizer.weight_decay = 0.01
  elif arg == 'small':
    c.qa.passage_length = 160
    c.qa.answer_length = 16
    c.optimizer.learning_rate = 1e-3  # the start is small, too
  return c
