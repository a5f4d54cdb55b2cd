# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""ORQA as released: BERT base, blocks of 288 wordpieces, beams of 5000 and 5.

Lee et al. 2019, section 6; Guu et al. 2020, section 4: fine-tuning one question at a
time at 1e-5, 20 to 60 epochs of the small question sets, 2 to 4 of NQ-open. Starts
from a run or a converted checkpoint of REALM:

  python -m experiments.convert --from=cc_news_pretrained --workdir=CONVERTED
  python -m experiments.train --config=configs/open_qa_released.py \
    --config.realm_from=CONVERTED --config.data_dir=DATA \
    --config.questions.train="('nq_open:train',)" --workdir=DIR
"""

from experiments.engine import configs
from experiments.open_qa import config as config_lib


def get_config(arg: str = 'base') -> configs.Config:
  c = configs.of(config_lib.Config)
  c.layout.query_length = 64
  c.blocks.max_length = 288
  c.lookup.retriever_beam = 5000
  c.lookup.reader_beam = 5
  c.model.pooling = 'pooler'
  c.model.projection_size = 128
  c.questions.train = ('nq_open:train',)
  c.questions.dev = ('nq_open:dev',)

  c.model.projection_dropout_rate = 0.0
  for bert in (c.embedder, c.encoder):
    bert.update(max_length=512, activation='gelu_tanh')

  c.optimizer.learning_rate = 1e-5
  c.batch_size = 1
  c.num_steps = 300_000
  c.log_every = 100
  c.eval_every = c.checkpoint_every = 5000
  c.eval_batches = 500
  config_lib.set_variant(c, arg)
  return c
