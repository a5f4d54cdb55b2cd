# Copyright 2026 The realm_jax and retro_jax authors.
# SPDX-License-Identifier: Apache-2.0
"""Questions answered from the packaged vital articles of Wikipedia; two CPU cores.

The retriever starts from all-MiniLM-L6-v2, the reader from the packaged one; the
questions are Red-Trivia's. Eleven minutes beside other work, three of them for the
vectors of 12,908 blocks. Expected: exact answers to 28.5 % of the 200 test questions
(experiments.evaluate), against 15.0 % by the packaged reader and BM25, both measured
with the reader before 27 November 2026; the blocks read hold an answer for 38.0 %.

  python -m experiments.train --config=configs/open_qa_quickstart.py \
    --workdir=runs/qa
  python -m experiments.ask --workdir=runs/qa \
    'What is the capital of Mongolia?'
"""

from experiments.engine import configs
from experiments.open_qa import config as config_lib
from experiments.realm import config as realm_config


def get_config(arg: str = 'base') -> configs.Config:
  c = configs.of(config_lib.Config)
  c.blocks.max_length = 128
  c.layout.query_length = 32
  c.lookup.question_length = 32
  c.lookup.row_length = 152
  lists = 'artandliterature,computers,elements,general,greekmyth,worldcapitals'
  c.questions.train = (f'red_trivia:train={lists}',)
  c.questions.dev = (f'red_trivia:dev={lists}',)
  configs.for_command(c, 'evaluate', questions=(f'red_trivia:test={lists}',))

  realm_config.start_from_minilm(c)
  c.encoder_from = '' if arg.endswith('test') else 'packaged'

  c.optimizer.learning_rate = 5e-5
  c.optimizer.warmup_steps = 20
  c.optimizer.accumulate_steps = 16  # blocks without an answer are not read
  c.optimizer.part_scales = {'embedder': 0.2}  # it retrieves well already

  c.batch_size = 16
  c.num_steps = 100
  c.eval_every = c.checkpoint_every = 50
  c.eval_batches = 8
  config_lib.set_variant(c, arg)
  return c
