# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""ColBERT over the packaged vital articles of Wikipedia; one CPU core.

Khattab and Zaharia 2020: late interaction from all-MiniLM-L6-v2, vectors of 128. A
step takes 5 s of one core, the index of 12,908 blocks 7 minutes. Scores after 40
steps: docs/lab-notes/open_qa.md, "Late interaction".

  python -m experiments.train --config=configs/colbert_small.py \
    --config.questions.train="('webquestions:train=trainmodel.json,val.json,devtest.json',)" \
    --workdir=runs/colbert
  python -m experiments.retrieve --kinds=bm25,dense,colbert \
    --config.colbert_index.model=runs/colbert \
    --config.evaluate.questions="('webquestions:test=test.json',)"
"""

from experiments.engine import configs
from experiments.open_qa import config as config_lib
from experiments.realm import config as realm_config


def get_config(arg: str = 'base') -> configs.Config:
  configs.check_arg(arg, ('base', 'test'))
  c = configs.of(config_lib.ColbertConfig)
  c.blocks.max_length = 128
  lists = 'artandliterature,computers,elements,general,greekmyth,worldcapitals'
  c.questions.train = (f'red_trivia:train={lists}',)
  c.questions.dev = (f'red_trivia:dev={lists}',)

  c.embedder.checkpoint = 'minilm'
  c.embedder.dropout_rate = 0.0  # one short pass gives nothing to overfit

  c.optimizer.name = 'adamw'
  c.optimizer.b2 = 0.98
  c.optimizer.learning_rate = 5e-5
  c.optimizer.warmup_steps = 20
  c.optimizer.part_scales = {'linear': 4.0}  # starts at random

  c.batch_size = 16
  c.num_steps = 100
  c.eval_every = 50
  c.eval_batches = 8
  c.checkpoint_every = 25
  if arg == 'test':
    realm_config.set_test_size(c)
    c.dpr.depth = 20
    c.colbert.vector_size = 16
    c.colbert.passage_length = 48
  return c
